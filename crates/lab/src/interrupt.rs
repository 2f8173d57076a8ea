//! Ctrl-C, SIGTERM and SIGHUP set one flag, which all long operations check.
//!
//! After the first signal the program ends in an orderly way: it stops the trial in progress, keeps
//! the finished trials, and removes its test files. A second signal kills the program immediately.
//! `halfpower clean` can then remove the files that remain. Some commands ignore the second signal,
//! because they must first undo their changes, which takes little time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

/// The signals that ask the program to end.
const ORDERS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Returns the signals that ask this program to end. SIGHUP is not one of them under nohup(1).
fn orders() -> impl Iterator<Item = i32> {
    ORDERS.into_iter().filter(|signal| !keeps_ignoring(*signal))
}

/// Returns true for SIGHUP if this process was started with SIGHUP ignored, as nohup(1) does, so
/// that it must survive the end of its terminal. Other signals always have a handler: shells start
/// background commands with SIGINT ignored, and `kill -INT` must end those too.
fn keeps_ignoring(signal: i32) -> bool {
    let ignored = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    signal == SIGHUP && ignored().is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

/// Records SIGTERM and SIGHUP, so that a program can pass them on to a command that it runs.
#[derive(Clone, Debug, Default)]
pub struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// Signal number of SIGHUP.
    pub const HANG_UP: i32 = SIGHUP;

    /// Installs the signal handlers.
    pub fn install() -> Signals {
        let signals = Signals::default();
        for signal in [SIGTERM, SIGHUP].into_iter().filter(|signal| !keeps_ignoring(*signal)) {
            // If this fails, the signal keeps its default action and ends this program.
            let _ = flag::register_usize(signal, Arc::clone(&signals.0), signal as usize);
        }
        signals
    }

    /// Returns the number of the last signal that arrived since the previous call. Returns None if
    /// no signal arrived.
    pub fn take(&self) -> Option<i32> {
        let signal = self.0.swap(0, Ordering::Relaxed);
        (signal != 0).then_some(signal as i32)
    }
}

/// The flag that a signal sets.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the signal handlers. A second signal ends the program immediately.
    pub fn install() -> Interrupt {
        let interrupt = Interrupt::default();
        // This flag catches a signal that arrives while the handlers are being installed.
        let early = Arc::new(AtomicBool::new(false));
        for signal in orders() {
            let _ = flag::register(signal, Arc::clone(&early));
            // Handlers run in the order of registration. The handler that ends the program on a
            // second signal is registered first, so that it sees the flag as it was before the
            // current signal. If the registration fails, the signal ends the program immediately,
            // as by default.
            let _ = flag::register_conditional_default(signal, Arc::clone(&interrupt.0));
        }
        let interrupt = interrupt.catch();
        if early.load(Ordering::Relaxed) {
            interrupt.0.store(true, Ordering::Relaxed);
        }
        interrupt
    }

    /// Installs handlers that set the flag and ignore a second signal. SIGQUIT (Ctrl-\) still ends
    /// the program.
    pub fn until_all_is_put_away() -> Interrupt {
        Interrupt::default().catch()
    }

    fn catch(self) -> Interrupt {
        let interrupt = self;
        for signal in orders() {
            let _ = flag::register(signal, Arc::clone(&interrupt.0));
        }
        ioengine::network::end_set_up_with(Arc::clone(&interrupt.0));
        // Because SIGXFSZ has a handler, a write beyond the file-size limit fails with EFBIG
        // instead of killing the program. The program reports this error with a remedy.
        let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
        interrupt
    }

    /// Installs handlers for a program that runs a command of the user. The terminal sends Ctrl-C
    /// to both programs. The command decides how to react, and this program continues, to report
    /// the result.
    pub fn beside_a_command() -> Interrupt {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGQUIT] {
            // If this fails, the signal ends this program together with the command.
            let _ = flag::register(signal, Arc::clone(&interrupt.0));
        }
        interrupt
    }

    /// Sets the flag, as a signal does.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if a signal has arrived or [`Interrupt::set`] was called.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the flag for sharing with other threads.
    pub fn shared_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Returns the flag for the load generator.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}
