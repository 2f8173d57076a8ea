//! Handles Ctrl-C, SIGTERM and SIGHUP. These signals set a flag, which all long operations check.
//!
//! After the first signal, the program stops the trial in progress, keeps the finished trials, and
//! removes its test files. A second signal kills the program immediately. `halfpower clean` can
//! then remove the files that remain. Some commands ignore the second signal, because they must
//! first undo their changes. This takes little time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

const ORDERS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Returns the signals that end this program. Under nohup(1), SIGHUP does not end it.
fn orders() -> impl Iterator<Item = i32> {
    ORDERS.into_iter().filter(|signal| !keeps_ignoring(*signal))
}

/// Returns true if the signal is SIGHUP and was ignored when this process started, as under
/// nohup(1). The process must then survive the end of its terminal. SIGINT always gets a handler,
/// because shells start background commands with SIGINT ignored, and `kill -INT` must still work.
fn keeps_ignoring(signal: i32) -> bool {
    let ignored = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    signal == SIGHUP && ignored().is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

/// Records SIGTERM and SIGHUP. A program uses this to forward these signals to a command that it
/// runs.
#[derive(Clone, Debug, Default)]
pub struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// Signal number of SIGHUP.
    pub const HANG_UP: i32 = SIGHUP;

    /// Installs the signal handlers.
    pub fn install() -> Signals {
        let signals = Signals::default();
        for signal in [SIGTERM, SIGHUP].into_iter().filter(|signal| !keeps_ignoring(*signal)) {
            // If this fails, the signal keeps its default action, which ends this program.
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

/// A flag that a signal sets. Clones share the flag.
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
            // This handler ends the program if the flag is already set. Handlers run in the order
            // of registration, so this handler must be registered before the handler that sets the
            // flag. If the registration fails, the signal ends the program immediately.
            let _ = flag::register_conditional_default(signal, Arc::clone(&interrupt.0));
        }
        let interrupt = interrupt.catch();
        if early.load(Ordering::Relaxed) {
            interrupt.0.store(true, Ordering::Relaxed);
        }
        interrupt
    }

    /// Installs the signal handlers. A second signal is ignored, so that the program can undo its
    /// changes. SIGQUIT (Ctrl-\) still ends the program.
    pub fn until_all_is_put_away() -> Interrupt {
        Interrupt::default().catch()
    }

    fn catch(self) -> Interrupt {
        let interrupt = self;
        for signal in orders() {
            let _ = flag::register(signal, Arc::clone(&interrupt.0));
        }
        ioengine::network::end_set_up_with(Arc::clone(&interrupt.0));
        // By default, SIGXFSZ kills the program when it writes beyond the file size limit (ulimit
        // -f). With a handler, the write fails with EFBIG, and the program can report the error.
        let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
        interrupt
    }

    /// Installs handlers for a program that runs a command of the user. The terminal sends Ctrl-C
    /// to the program and to the command. The program is not ended, so it can report the result
    /// after the command has ended.
    pub fn beside_a_command() -> Interrupt {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGQUIT] {
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

    /// Returns a reference-counted handle of the flag, for other threads.
    pub fn shared_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Returns a reference to the flag.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}
