//! Ctrl-C, SIGTERM and SIGHUP set one flag, which all long operations check.
//!
//! After the first signal the program ends in an orderly way: it stops the trial in progress, keeps
//! the finished ones, and removes its test files. A second signal of the same kind kills the
//! program immediately, and `halfpower clean` can remove the files that it leaves. Commands that
//! must clean up first, which is quick, ignore the second signal.

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

/// SIGTERM and SIGHUP, for a program that passes them on to a command that it runs.
#[derive(Clone, Debug, Default)]
pub struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// The number of SIGHUP.
    pub const HANG_UP: i32 = SIGHUP;

    /// Installs the signal handlers.
    pub fn install() -> Signals {
        let signals = Signals::default();
        for signal in [SIGTERM, SIGHUP].into_iter().filter(|signal| !keeps_ignoring(*signal)) {
            // If this fails, the signal ends this program, as by default.
            let _ = flag::register_usize(signal, Arc::clone(&signals.0), signal as usize);
        }
        signals
    }

    /// The number of a signal that arrived since the last call.
    pub fn take(&self) -> Option<i32> {
        let signal = self.0.swap(0, Ordering::Relaxed);
        (signal != 0).then_some(signal as i32)
    }
}

/// The flag that a signal sets.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the signal handlers; a second signal ends the program immediately.
    pub fn install() -> Interrupt {
        let interrupt = Interrupt::default();
        // Also catches a signal that arrives while the handlers are being installed.
        let early = Arc::new(AtomicBool::new(false));
        for signal in orders() {
            let _ = flag::register(signal, Arc::clone(&early));
            // The handler for a second signal is registered first, so that it sees the flag as it
            // was before this signal. If this fails, the signal ends the program immediately, as by
            // default.
            let _ = flag::register_conditional_default(signal, Arc::clone(&interrupt.0));
        }
        let interrupt = interrupt.catch();
        if early.load(Ordering::Relaxed) {
            interrupt.0.store(true, Ordering::Relaxed);
        }
        interrupt
    }

    /// Installs handlers that also ignore a second signal; SIGQUIT (Ctrl-\) still ends the program.
    pub fn until_all_is_put_away() -> Interrupt {
        Interrupt::default().catch()
    }

    fn catch(self) -> Interrupt {
        let interrupt = self;
        for signal in orders() {
            let _ = flag::register(signal, Arc::clone(&interrupt.0));
        }
        ioengine::network::end_set_up_with(Arc::clone(&interrupt.0));
        // With a handler, a write beyond the file-size limit returns EFBIG, an error with a remedy,
        // instead of killing the program.
        let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
        interrupt
    }

    /// Installs handlers for a program that runs a command of the user. The terminal sends Ctrl-C
    /// to both. The command decides how to react, and this program continues, to report the result.
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

    /// Whether a signal has arrived.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag, for sharing with other threads.
    pub fn shared_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// The flag, for the load generator.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}
