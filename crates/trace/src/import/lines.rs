//! Reads text line by line in bounded memory. Error messages contain the name of the file and the
//! number of the line.

use std::io::{BufRead, Read as _};

use crate::error::{TraceError, one_line};

/// Maximum length of a line (bytes). A line of strace contains at most two paths of 4096 bytes, and
/// strace prints each byte as up to four characters. Both paths together are at most 32 KiB.
const LINE_MOST: u64 = 64 << 10;

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Reads lines, which may end with LF or CRLF. Replaces bytes that are not valid UTF-8.
pub(crate) struct Lines<'a> {
    input: Box<dyn BufRead + 'a>,
    name: String,
    number: u64,
    raw: Vec<u8>,
    text: String,
    remedy: &'static str,
}

impl<'a> Lines<'a> {
    /// Creates a reader of `input`. `name` is the name of the input in error messages.
    pub(crate) fn new(input: impl BufRead + 'a, name: &str) -> Lines<'a> {
        Lines {
            input: Box::new(input),
            name: name.to_owned(),
            number: 0,
            raw: Vec::new(),
            text: String::new(),
            remedy: "correct the line, or specify another format",
        }
    }

    /// Reads the next line. Returns false at the end of the text.
    pub(crate) fn next(&mut self) -> Result<bool, TraceError> {
        self.text.clear();
        self.append()
    }

    /// Appends the next line to the current line, for quoted fields that contain a line end.
    /// Returns false at the end of the text.
    pub(crate) fn append(&mut self) -> Result<bool, TraceError> {
        self.raw.clear();
        let mut limited = (&mut self.input).take(LINE_MOST);
        let read = limited.read_until(b'\n', &mut self.raw);
        if read.map_err(|cause| TraceError::reading(&self.name, cause))? == 0 {
            return Ok(false);
        }
        self.number += 1;
        let ended = self.raw.pop_if(|last| *last == b'\n').is_some();
        if ended {
            self.raw.pop_if(|last| *last == b'\r');
        }
        self.text.push_str(&String::from_utf8_lossy(&self.raw));
        if self.text.len() as u64 >= LINE_MOST {
            return Err(self.bad("a line of less than 64 KiB"));
        }
        Ok(true)
    }

    /// Returns the current line without its line end.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Appends a line end to the current line.
    pub(crate) fn push_end(&mut self) {
        self.text.push('\n');
    }

    /// Returns the number of the current line, which is 1 for the first line.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Creates an error which states that the format requires `expected` in the current line.
    pub(crate) fn bad(&self, expected: &'static str) -> TraceError {
        TraceError::Line {
            name: self.name.clone(),
            line: self.number,
            expected,
            found: one_line(self.text.trim()),
            remedy: self.remedy,
        }
    }
}

/// Splits a line at commas. None if there are not exactly `N` fields.
pub(crate) fn fields<const N: usize>(line: &str) -> Option<[&str; N]> {
    let mut fields = [""; N];
    let mut found = line.split(',');
    for field in &mut fields {
        *field = found.next()?.trim();
    }
    found.next().is_none().then_some(fields)
}

/// Converts a decimal number of seconds to nanoseconds. Decimal places after the ninth are ignored.
pub(crate) fn seconds_ns(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(9)];
    let ns = fraction.parse::<u64>().ok()? * 10_u64.pow(9 - fraction.len() as u32);
    whole.parse::<u64>().ok()?.checked_mul(SECOND_NS)?.checked_add(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_linux_and_windows_have_the_same_text() {
        let mut lines = Lines::new(&b"a\r\nb\n\nc"[..], "x");
        let mut found = Vec::new();
        while lines.next().unwrap() {
            found.push(lines.text().to_owned());
        }
        assert_eq!(found, ["a", "b", "", "c"]);
        assert_eq!(lines.number(), 4);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let endless = vec![b'x'; 1 << 20];
        let error = Lines::new(&endless[..], "x").next().unwrap_err().to_string();
        assert!(error.starts_with("x:1: expected a line of less than 64 KiB"), "{error}");
        assert!(error.len() < 300, "{error}");
    }

    #[test]
    fn seconds_are_exact_to_the_nanosecond() {
        assert_eq!(seconds_ns("1455592800.036932000"), Some(1_455_592_800_036_932_000));
        assert_eq!(seconds_ns("0.5"), Some(500_000_000));
        assert_eq!(seconds_ns("7"), Some(7_000_000_000));
        assert_eq!(seconds_ns("0.1234567899"), Some(123_456_789));
        for wrong in ["", ".", "-1", "1.", "1e3", "99999999999999", "0.+1"] {
            assert_eq!(seconds_ns(wrong), None, "{wrong}");
        }
    }
}
