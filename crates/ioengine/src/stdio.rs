//! Checks whether standard output was open when the process began.
//!
//! Before `main`, Rust's runtime replaces a closed standard stream by `/dev/null`. Output is then
//! lost although every write succeeds. So the check must run before the runtime, in a function that
//! the dynamic loader calls.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section `.init_array` contains functions of this signature. The loader calls each of
// them once before `main`. `check_stdout` makes one system call, stores a flag, and does not use
// the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static CHECK: extern "C" fn() = check_stdout;

extern "C" fn check_stdout() {
    // SAFETY: fcntl with F_GETFD takes any descriptor number and only returns its flags.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Returns whether standard output was closed when the process began. In this case all output to
/// standard output is lost.
pub fn stdout_was_closed() -> bool {
    // Without this reference, the linker could remove `CHECK`. The loader would then not call
    // `check_stdout`.
    std::hint::black_box(&CHECK);
    WAS_CLOSED.load(Ordering::Relaxed)
}
