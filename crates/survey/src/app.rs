//! What the user's program issues today (`survey --app`), so that advice is priced against that.
//! Knows nothing of how it is measured.

use serde::{Deserialize, Serialize};

/// How a program reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// Size of its requests (bytes).
    pub request_bytes: u32,
    /// Whether it bypasses the page cache.
    pub direct: bool,
    /// Requests that it keeps outstanding.
    pub depth: u32,
}

/// Reads it: `8k`, `8k,direct`, `64k,direct,8`.
///
/// # Errors
/// What does not fit.
pub fn parse(text: &str) -> Result<App, String> {
    let mut parts = text.split(',');
    let size = units::parse_size(parts.next().unwrap_or_default())?;
    let request_bytes = u32::try_from(size).ok().filter(|size| (512..=16 << 20).contains(size));
    let request_bytes = request_bytes.ok_or("a request has 512 bytes to 16 MiB")?;
    let mut app = App { request_bytes, direct: false, depth: 1 };
    for part in parts {
        match part {
            "direct" => app.direct = true,
            "buffered" => app.direct = false,
            depth => {
                let depth = depth.parse().ok().filter(|depth| (1..=1024).contains(depth));
                app.depth = depth.ok_or_else(|| format!("'{part}' is no depth from 1 to 1024"))?;
            }
        }
    }
    match app.direct || app.depth == 1 {
        true => Ok(app),
        false => Err("buffered requests are made one at a time; add direct".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_issues_is_read() {
        let app = |request_bytes, direct, depth| Ok(App { request_bytes, direct, depth });
        assert_eq!(parse("8k"), app(8192, false, 1));
        assert_eq!(parse("64k,direct,8"), app(65536, true, 8));
        assert_eq!(parse("4k,buffered"), app(4096, false, 1));
        for wrong in ["", "8k,4", "1g", "8k,direct,0", "8k,fast", "7"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
