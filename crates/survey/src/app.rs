//! The option `survey --app`, which describes the requests that the user's program issues today.
//! Advice states its gain relative to these requests.

use analysis::units;
use serde::{Deserialize, Serialize};

/// The requests that the user's program issues today.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// Request size (bytes).
    pub request_bytes: u32,
    /// Whether the program bypasses the page cache.
    pub direct: bool,
    /// Queue depth: the number of outstanding requests.
    pub depth: u32,
}

impl App {
    /// Formats the requests, such as "direct, 8 KiB, depth 4".
    pub fn text(&self) -> String {
        let caching = if self.direct { "direct" } else { "buffered" };
        format!("{caching}, {}, depth {}", units::size(self.request_bytes.into()), self.depth)
    }
}

/// Parses the value of `--app`: `bs=8k,iodepth=4,direct`, or `8k,direct,4` for short.
///
/// # Errors
/// Returns a message for the user if a part is unknown or out of range, if the request size is
/// missing, or if a depth above 1 is combined with buffered I/O.
pub fn parse(text: &str) -> Result<App, String> {
    let mut app = App { request_bytes: 0, direct: false, depth: 1 };
    for (index, part) in text.split(',').map(str::trim).enumerate() {
        match part.split_once('=') {
            Some(("bs", size)) => app.request_bytes = request_bytes(size)?,
            Some(("iodepth", depth)) => app.depth = depth_of(depth)?,
            Some(("direct", on @ ("0" | "1"))) => app.direct = on == "1",
            Some(_) => {
                return Err(format!("unknown part '{part}'; use bs=8k,iodepth=1,buffered"));
            }
            None if part == "direct" => app.direct = true,
            None if part == "buffered" => app.direct = false,
            None if index == 0 => app.request_bytes = request_bytes(part)?,
            None => app.depth = depth_of(part)?,
        }
    }
    if app.request_bytes == 0 {
        return Err("the request size is missing; use bs=8k,iodepth=1,buffered".to_owned());
    }
    if app.direct || app.depth == 1 {
        Ok(app)
    } else {
        Err("a depth above 1 needs direct I/O; add direct".to_owned())
    }
}

fn request_bytes(text: &str) -> Result<u32, String> {
    let size = units::parse_size(text)?;
    let bytes = u32::try_from(size).ok().filter(|size| (512..=16 << 20).contains(size));
    bytes.ok_or_else(|| "the request size must be 512 bytes to 16 MiB".to_owned())
}

fn depth_of(text: &str) -> Result<u32, String> {
    let depth = text.parse().ok().filter(|depth| (1..=1024).contains(depth));
    depth.ok_or_else(|| format!("'{text}' is not a depth from 1 to 1024"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_program_are_parsed() {
        let app = |request_bytes, direct, depth| Ok(App { request_bytes, direct, depth });
        assert_eq!(parse("8k"), app(8192, false, 1));
        assert_eq!(parse("64k,direct,8"), app(65536, true, 8));
        assert_eq!(parse("4k,buffered"), app(4096, false, 1));
        assert_eq!(parse("bs=8k,iodepth=1,buffered"), app(8192, false, 1));
        assert_eq!(parse("iodepth=16, direct=1, bs=4k"), app(4096, true, 16));
        let wrong = ["", "8k,4", "1g", "8k,direct,0", "8k,fast", "7", "direct", "iodepth=4"];
        for wrong in wrong.into_iter().chain(["bs=8k,rw=read"]) {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn requests_read_as_in_a_sentence() {
        assert_eq!(parse("bs=8k,direct,4").unwrap().text(), "direct, 8 KiB, depth 4");
    }
}
