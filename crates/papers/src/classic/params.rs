//! Parses the parameter file of SQLIO's flag -F. Each line has the path of a test file, the number
//! of threads for this file, and optionally a CPU mask and a size in MB (2^20 bytes). An example is
//! `test.dat 2 0x0 100`.
//!
//! Lines that begin with # are comments.

use std::path::PathBuf;

use lab::failure::{Failure, Outcome};

use crate::classic::flags::{THREADS_MAX, mask};

/// A line of the parameter file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamLine {
    /// The file that is read or written.
    pub file: PathBuf,
    /// The number of threads that access the file.
    pub threads: u32,
    /// The CPUs of the line's affinity mask. Empty if threads are not pinned.
    pub cpus: Vec<usize>,
    /// The size of the part of the file that is accessed (MB; a MB is 2^20 bytes). None if the line
    /// states no size.
    pub size_mb: Option<u64>,
}

/// Parses a parameter file.
///
/// # Errors
/// `Exit::Usage`, if a line is malformed or if no line lists a file. The message contains the
/// number of the first malformed line and the expected format.
pub fn parse(text: &str) -> Outcome<Vec<ParamLine>> {
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let said = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let found: Vec<ParamLine> =
        said.map(|(number, text)| line(number, text)).collect::<Outcome<_>>()?;
    if found.is_empty() {
        Err(Failure::usage(
            "the parameter file lists no test file; write lines such as: test.dat 2 0x0 100",
        ))
    } else {
        Ok(found)
    }
}

fn line(number: usize, text: &str) -> Outcome<ParamLine> {
    let wrong = |what: String| {
        Failure::usage(format!(
            "line {number} of the parameter file: {what}; write the line as FILE THREADS [MASK \
             [MB]], such as: test.dat 2 0x0 100"
        ))
    };
    let fields: Vec<&str> = text.split_whitespace().collect();
    let (file, threads, rest) = match fields.as_slice() {
        [file, threads, rest @ ..] if rest.len() <= 2 => (file, threads, rest),
        fields => return Err(wrong(format!("the line has {} fields", fields.len()))),
    };
    let threads = threads.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
    let threads = threads
        .ok_or_else(|| wrong(format!("the number of threads must be 1 to {THREADS_MAX}")))?;
    let cpus = rest.first().map_or(Ok(Vec::new()), |text| mask(text)).map_err(wrong)?;
    let size_mb = match rest.get(1).map(|text| text.parse::<u64>()) {
        None => None,
        Some(Ok(mb)) if (1..1 << 40).contains(&mb) => Some(mb),
        Some(_) => return Err(wrong(format!("'{}' is not a size in MB", rest[1]))),
    };
    Ok(ParamLine { file: PathBuf::from(file), threads: threads as u32, cpus, size_mb })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_file_its_threads_its_mask_and_its_size() {
        let text = "# a comment\n\nc:\\testfile.dat 2 0x0 100\n/data/other 1 0x2\nplain 3\n";
        let lines = parse(text).unwrap();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].file, PathBuf::from("c:\\testfile.dat"));
        assert_eq!((lines[0].threads, lines[0].size_mb), (2, Some(100)));
        assert!(lines[0].cpus.is_empty());
        assert_eq!((lines[1].cpus.as_slice(), lines[1].size_mb), (&[1][..], None));
        assert_eq!((lines[2].threads, lines[2].size_mb), (3, None));
    }

    #[test]
    fn a_wrong_line_is_named_with_the_expected_format() {
        for text in
            ["", "#\n", "file", "file 0", "file x", "f 1 m", "f 1 0 0", "f 1 0 1 9", "f 257"]
        {
            let failure = parse(text).unwrap_err();
            assert!(failure.message.contains("; write"), "{text}: {failure}");
        }
        assert!(parse("a 1\nb x").unwrap_err().message.contains("line 2"));
    }
}
