//! Whether standard output was open when the process began.
//!
//! Before `main`, Rust's runtime replaces a closed standard stream by `/dev/null`: output is then
//! lost although every write succeeds. So the check must run earlier, in a function that the
//! dynamic loader calls.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section holds functions of this signature, which the loader calls once each before
// `main`; this function makes one system call, stores a flag, and does not use the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static CHECK: extern "C" fn() = check_stdout;

extern "C" fn check_stdout() {
    // SAFETY: fcntl with F_GETFD takes any descriptor number and only returns its flags.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Whether standard output was closed when the process began: all output to it is lost.
pub fn stdout_was_closed() -> bool {
    // Without this reference the linker could drop the function above.
    std::hint::black_box(&CHECK);
    WAS_CLOSED.load(Ordering::Relaxed)
}
