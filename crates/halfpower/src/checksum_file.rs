//! Lines of checksums, as b3sum writes and reads them: 64 hexadecimal digits, two blanks, a name.
//!
//! A name with a backslash or a line break is written with `\\`, `\n` or `\r` in its place, and its
//! line then begins with a backslash. Names are bytes, as in the file system.

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// What the file should be.
    pub hash: blake3::Hash,
    /// What it is called.
    pub name: Vec<u8>,
}

impl Sum {
    /// The line, without its end.
    pub fn line(&self) -> Vec<u8> {
        let (escapes, name) = escaped(&self.name);
        [escapes, self.hash.to_hex().as_bytes(), b"  ", &name].concat()
    }
}

/// What stands before the line of a name, and the name as it is written.
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

/// Reads the lines of a file of checksums; empty ones say nothing.
///
/// # Errors
/// The number of the first line that is none, from 1, and what is wrong with it.
pub fn parse(text: &[u8]) -> Result<Vec<Sum>, (usize, &'static str)> {
    let lines = text.split(|byte| *byte == b'\n').zip(1..);
    let lines = lines.map(|(line, number)| (line.strip_suffix(b"\r").unwrap_or(line), number));
    let some = lines.filter(|(line, _)| !line.is_empty());
    some.map(|(line, number)| parse_line(line).map_err(|why| (number, why))).collect()
}

fn parse_line(line: &[u8]) -> Result<Sum, &'static str> {
    const FORM: &str = "no line of checksums: 64 hexadecimal digits, two blanks, a name";
    let (escapes, rest) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (digits, rest) = rest.split_at_checked(2 * blake3::OUT_LEN).ok_or(FORM)?;
    let hash = blake3::Hash::from_hex(digits).map_err(|_| FORM)?;
    let name = rest.strip_prefix(b"  ").ok_or(FORM)?;
    let name = if escapes { unescaped(name)? } else { name.to_vec() };
    match name.contains(&0) || name.is_empty() {
        true => Err("the name is empty, or none that a file can have"),
        false => Ok(Sum { hash, name }),
    }
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
                _ => return Err("a backslash in the name is followed by none of \\, n and r"),
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
    fn a_line_is_that_of_b3sum() {
        // The digits are those of the test vectors for nothing at all.
        let empty = Sum { hash: blake3::hash(b""), name: b"a b".to_vec() };
        let line = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262  a b";
        assert_eq!(empty.line(), line.as_bytes());
        assert!(sum("a\\b\nc").line().starts_with(b"\\6437"));
        assert!(sum("a\\b\nc").line().ends_with(b"  a\\\\b\\nc"));
    }

    #[test]
    fn every_name_is_read_as_it_was_written() {
        let sums: Vec<Sum> =
            ["a", " a  b ", "a\\nb", "a\nb\r", "\r", "\\", "-"].map(sum).into_iter().collect();
        let text: Vec<Vec<u8>> = sums.iter().map(Sum::line).collect();
        for end in [&b"\n"[..], b"\r\n", b"\n\n"] {
            assert_eq!(parse(&text.join(end)), Ok(sums.clone()));
        }
    }

    #[test]
    fn what_is_no_line_is_named_by_its_number() {
        let good = String::from_utf8(sum("a").line()).unwrap();
        let wrong =
            ["x", &good[1..], &good.replace("  ", " "), &good[..66], &format!("\\{good}\\")];
        for line in wrong {
            let text = format!("{good}\n\n{line}\n");
            assert_eq!(parse(text.as_bytes()).unwrap_err().0, 3, "{line}");
        }
    }
}
