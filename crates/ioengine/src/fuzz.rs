//! Entry points for the fuzz targets: the parsers of the kernel's text files, and the clients of
//! network protocols. No input may make them panic.

#[cfg(feature = "network")]
pub use crate::network::fuzz::network_server;
use crate::{buffer, device, mount};

/// Parses `text` as mountinfo, as device counters, as a list with a selected entry, and as smaps.
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
