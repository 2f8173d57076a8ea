//! The requests that the user's program issues today (`survey --app`), the baseline of the gains
//! that advice states.

use analysis::units;
use serde::{Deserialize, Serialize};

/// The requests that the user's program issues today.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// Request size (bytes).
    pub request_bytes: u32,
    /// Whether the program bypasses the page cache.
    pub direct: bool,
    /// Requests outstanding.
    pub depth: u32,
}

/// Parses the value of `--app`: `8k`, `8k,direct`, `64k,direct,8`.
///
/// # Errors
/// A message for the user.
pub fn parse(text: &str) -> Result<App, String> {
    let mut parts = text.split(',');
    let size = units::parse_size(parts.next().unwrap_or_default())?;
    let request_bytes = u32::try_from(size).ok().filter(|size| (512..=16 << 20).contains(size));
    let request_bytes = request_bytes.ok_or("the request size must be 512 bytes to 16 MiB")?;
    let mut app = App { request_bytes, direct: false, depth: 1 };
    for part in parts {
        match part {
            "direct" => app.direct = true,
            "buffered" => app.direct = false,
            depth => {
                let depth = depth.parse().ok().filter(|depth| (1..=1024).contains(depth));
                app.depth =
                    depth.ok_or_else(|| format!("'{part}' is not a depth from 1 to 1024"))?;
            }
        }
    }
    if app.direct || app.depth == 1 {
        Ok(app)
    } else {
        Err("a depth above 1 needs direct I/O; add direct".to_owned())
    }
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
        for wrong in ["", "8k,4", "1g", "8k,direct,0", "8k,fast", "7"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
