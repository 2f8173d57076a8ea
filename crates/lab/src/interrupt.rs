//! Ctrl-C, SIGTERM and SIGHUP: one flag that everything long looks at.
//!
//! The first signal asks for an orderly end: the trial in progress stops, what is finished is
//! kept, test files are removed. A second one of the same kind ends the program at once, as the
//! system would have done; `halfpower clean` then removes what is left. Where something must be
//! taken away before the end, which is quick, a second one changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

/// What is understood as an order to stop.
const ORDERS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// The order to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches the signals from now on.
    pub fn install() -> Interrupt {
        let interrupt = Interrupt::default();
        // A signal that comes while the handlers are put in place one by one is not lost.
        let early = Arc::new(AtomicBool::new(false));
        for signal in ORDERS {
            let _ = flag::register(signal, Arc::clone(&early));
            // The conditional one comes first, so that it sees the flag of an earlier signal.
            // Failure leaves the system's default: the program ends at once.
            let _ = flag::register_conditional_default(signal, Arc::clone(&interrupt.0));
        }
        let interrupt = interrupt.catch();
        if early.load(Ordering::Relaxed) {
            interrupt.0.store(true, Ordering::Relaxed);
        }
        interrupt
    }

    /// The same, but a second signal does not end the program either (SIGQUIT does, Ctrl-\).
    pub fn until_all_is_put_away() -> Interrupt {
        Interrupt::default().catch()
    }

    fn catch(self) -> Interrupt {
        let interrupt = self;
        for signal in ORDERS {
            let _ = flag::register(signal, Arc::clone(&interrupt.0));
        }
        // A file-size limit is then an error of the write (EFBIG), with a remedy, and not the end.
        let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
        interrupt
    }

    /// Catches what a terminal sends to a command and to this program alike: the command decides
    /// what it means, and this program outlives it to report.
    pub fn beside_a_command() -> Interrupt {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGQUIT] {
            // Failure leaves the system's default: the program ends with the command.
            let _ = flag::register(signal, Arc::clone(&interrupt.0));
        }
        interrupt
    }

    /// Whether a signal has come.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, to be shared.
    pub fn shared_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// The flag itself, for the load generator.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}
