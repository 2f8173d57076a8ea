//! Parses and formats checksum files in the format of b3sum. Each line has 64 hexadecimal digits,
//! two spaces and a name.
//!
//! Backslashes and line breaks in a name are escaped as `\\`, `\n` and `\r`. A line with an escaped
//! name starts with a backslash. Names are arbitrary bytes, as in the file system.

/// One line of a checksum file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The checksum of the file.
    pub hash: blake3::Hash,
    /// Name of the file.
    pub name: Vec<u8>,
}

impl Sum {
    /// Formats the line, without a line break.
    pub fn line(&self) -> Vec<u8> {
        let (escapes, name) = escaped(&self.name);
        [escapes, self.hash.to_hex().as_bytes(), b"  ", &name].concat()
    }
}

/// Escapes a name. Returns the prefix of the line (a backslash if something was escaped) and the
/// escaped name.
pub fn escaped(name: &[u8]) -> (&'static [u8], Vec<u8>) {
    let mut written = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'\\' => written.extend(b"\\\\"),
            b'\n' => written.extend(b"\\n"),
            b'\r' => written.extend(b"\\r"),
            byte => written.push(*byte),
        }
    }
    let escapes = if written.len() == name.len() { b"".as_slice() } else { b"\\" };
    (escapes, written)
}

/// Parses a checksum file. Empty lines are skipped.
///
/// # Errors
/// The number of the first invalid line (counted from 1), and the reason why it is invalid.
pub fn parse(text: &[u8]) -> Result<Vec<Sum>, (usize, &'static str)> {
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    let lines = lines.map(|(line, number)| (line.strip_suffix(b"\r").unwrap_or(line), number));
    let some = lines.filter(|(line, _)| !line.is_empty());
    some.map(|(line, number)| parse_line(line).map_err(|why| (number, why))).collect()
}

fn parse_line(line: &[u8]) -> Result<Sum, &'static str> {
    const FORM: &str = "not a checksum line (64 hexadecimal digits, two spaces, a name)";
    let (escapes, rest) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (digits, rest) = rest.split_at_checked(2 * blake3::OUT_LEN).ok_or(FORM)?;
    let hash = blake3::Hash::from_hex(digits).map_err(|_| FORM)?;
    let name = rest.strip_prefix(b"  ").ok_or(FORM)?;
    let name = if escapes { unescaped(name)? } else { name.to_vec() };
    if name.contains(&0) || name.is_empty() {
        return Err("the name is empty or contains a zero byte");
    }
    Ok(Sum { hash, name })
}

fn unescaped(written: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut name = Vec::with_capacity(written.len());
    let mut bytes = written.iter();
    while let Some(byte) = bytes.next() {
        name.push(match (byte, byte == &b'\\') {
            (byte, false) => *byte,
            _ => match bytes.next() {
                Some(b'\\') => b'\\',
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                _ => return Err("a backslash in the name must be followed by \\, n or r"),
            },
        });
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(name: &str) -> Sum {
        Sum { hash: blake3::hash(b"abc"), name: name.as_bytes().to_vec() }
    }

    #[test]
    fn lines_are_those_of_b3sum() {
        // The expected checksum of empty input is from the BLAKE3 test vectors.
        let empty = Sum { hash: blake3::hash(b""), name: b"a b".to_vec() };
        let line = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262  a b";
        assert_eq!(empty.line(), line.as_bytes());
        assert!(sum("a\\b\nc").line().starts_with(b"\\6437"));
        assert!(sum("a\\b\nc").line().ends_with(b"  a\\\\b\\nc"));
    }

    #[test]
    fn names_survive_a_round_trip() {
        let sums: Vec<Sum> =
            ["a", " a  b ", "a\\nb", "a\nb\r", "\r", "\\", "-"].map(sum).into_iter().collect();
        let text: Vec<Vec<u8>> = sums.iter().map(Sum::line).collect();
        for end in [&b"\n"[..], b"\r\n", b"\n\n"] {
            assert_eq!(parse(&text.join(end)), Ok(sums.clone()));
        }
    }

    #[test]
    fn invalid_lines_are_reported_by_number() {
        let good = String::from_utf8(sum("a").line()).unwrap();
        let wrong =
            ["x", &good[1..], &good.replace("  ", " "), &good[..66], &format!("\\{good}\\")];
        for line in wrong {
            let text = format!("{good}\n\n{line}\n");
            assert_eq!(parse(text.as_bytes()).unwrap_err().0, 3, "{line}");
        }
    }
}
