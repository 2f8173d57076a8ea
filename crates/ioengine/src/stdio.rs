//! Whether standard output was open when the process began.
//!
//! The runtime of Rust opens `/dev/null` in place of a closed standard stream, before `main`: what
//! a program then writes is lost, and every write succeeds. So it must be looked at earlier, by a
//! function that the loader calls.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section holds functions of this signature, which the loader calls once each before
// `main`; this one makes one system call and stores a flag, and needs nothing of the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: asks for a number, whatever the descriptor is.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Whether standard output was closed when the process began: what is written there now is lost.
pub fn stdout_was_closed() -> bool {
    // The reference keeps the function above in the program.
    std::hint::black_box(&LOOK);
    WAS_CLOSED.load(Ordering::Relaxed)
}
