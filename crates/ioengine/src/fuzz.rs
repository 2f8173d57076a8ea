//! Entry points for fuzzing the parsers of the kernel's text files, and the clients of network
//! protocols. No input may make this code panic.

#[cfg(feature = "network")]
pub use crate::network::fuzz::network_server;
use crate::{buffer, device, mount};

/// Parses `text` with each parser: for mountinfo, for the I/O counters of a device, for a list such
/// as `none [mq-deadline] kyber`, and for smaps.
pub fn texts(text: &str) {
    for mount in mount::parse(text) {
        assert!(!mount.options.starts_with(','));
    }
    let _ = device::parse_counters(text);
    assert!(text.contains(&device::in_brackets(text)));
    for line in text.lines() {
        let address = line.split('-').next().and_then(|low| u64::from_str_radix(low, 16).ok());
        let _ = buffer::huge_bytes_at(text, address.unwrap_or(0));
    }
}
