//! Converts traces of other tools to trace files, line by line in bounded memory.
//!
//! Each format has its own module. The module's documentation cites the description of the format
//! and explains how the fields are used. Lines without a request are skipped only if the format
//! allows them. A line that does not match the format is an error, whose message states the line
//! number and what was expected. Events that could not be matched are counted in [`Header::lost`].
//! Facts that the format does not record are listed in [`Header::notes`].

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::TraceError;
use crate::request::Header;
use crate::writer::TraceWriter;
use lines::Lines;
use research::Published;
use sink::Sink;

pub(crate) mod lines;
pub(crate) mod sink;
pub(crate) mod csv;
pub(crate) mod fio;
pub(crate) mod research;
pub(crate) mod pairs;
pub(crate) mod blkparse;
pub(crate) mod blktrace;
pub(crate) mod strace;

/// Number of bytes at the start of a file that [`detect`] needs.
pub const HEAD_BYTES: usize = 64 << 10;

/// Size of the buffer for reading a file (bytes).
const READ_BYTES: usize = 128 << 10;

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// CSV that halfpower exported.
    Csv,
    /// A log of fio, version 2 or 3.
    FioLog,
    /// Output of blkparse.
    Blkparse,
    /// Files of blktrace, one for each CPU.
    Blktrace,
    /// Output of `strace -ttt -T`.
    Strace,
    /// MSR Cambridge traces.
    Msr,
    /// Systor '17 traces.
    Systor,
    /// Alibaba block traces.
    Alibaba,
    /// Tencent block traces.
    Tencent,
}

impl Format {
    /// All formats, in the order in which [`detect`] tries them.
    pub const ALL: [Format; 9] = [
        Format::Csv,
        Format::FioLog,
        Format::Blkparse,
        Format::Blktrace,
        Format::Strace,
        Format::Msr,
        Format::Systor,
        Format::Alibaba,
        Format::Tencent,
    ];

    /// Returns the name of the format, as used in options and trace headers.
    pub fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::FioLog => "fio-iolog",
            Format::Blkparse => "blkparse",
            Format::Blktrace => "blktrace",
            Format::Strace => "strace",
            Format::Msr => "msr",
            Format::Systor => "systor17",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
        }
    }

    /// Returns the format with this name. None if the name is unknown.
    pub fn named(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    fn begins_with(self, line: &str) -> bool {
        match self {
            Format::Csv => csv::is_header(line),
            Format::FioLog => fio::version(line).is_some(),
            Format::Blkparse => blkparse::is_event(line),
            Format::Blktrace => false,
            Format::Strace => strace::is_call(line),
            Format::Msr => Published::Msr.begins_with(line),
            Format::Systor => Published::Systor.begins_with(line),
            Format::Alibaba => Published::Alibaba.begins_with(line),
            Format::Tencent => Published::Tencent.begins_with(line),
        }
    }
}

/// Finds the format of a file. `head` contains the first [`HEAD_BYTES`] of the file, or the whole
/// file if it is shorter.
///
/// # Errors
/// If the format is not one of [`Format::ALL`]. The message lists all formats.
pub fn detect(path: &Path, head: &[u8]) -> Result<Format, TraceError> {
    /// Number of lines to check. Some formats have a few lines before the first request.
    const LINES: usize = 16;
    if blktrace::begins(head) {
        return Ok(Format::Blktrace);
    }
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}');
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).take(LINES);
    let found =
        lines.find_map(|line| Format::ALL.into_iter().find(|format| format.begins_with(line)));
    found.ok_or_else(|| TraceError::UnknownFormat {
        name: path.display().to_string(),
        known: Format::ALL.map(Format::name).join(", "),
    })
}

/// Finds the format of a file by its first bytes.
///
/// # Errors
/// If the file cannot be read, or if its format is unknown.
pub fn detect_file(path: &Path) -> Result<Format, TraceError> {
    let fail = |cause| TraceError::reading(&path.display().to_string(), cause);
    let mut head = Vec::new();
    let file = File::open(path).map_err(fail)?;
    file.take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(fail)?;
    detect(path, &head)
}

/// Imports a file and writes the trace file `output`, which must not exist. If `input` is one of
/// the files that blktrace writes for each CPU, the files of the other CPUs in the same directory
/// are imported too.
///
/// # Errors
/// If the input cannot be read, if it does not match the format, or if the output cannot be
/// written. After an error, there is no output file.
pub fn convert(input: &Path, format: Format, output: &Path) -> Result<Header, TraceError> {
    let open = |path: &Path| {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|cause| TraceError::reading(&name, cause))?;
        Ok((name, BufReader::with_capacity(READ_BYTES, file)))
    };
    let inputs = match format {
        Format::Blktrace => files_of_cpus(input)?,
        _ => vec![input.to_owned()],
    };
    let inputs: Result<Vec<_>, TraceError> = inputs.iter().map(|path| open(path)).collect();
    let mut sink = Sink::new(TraceWriter::create(output)?);
    read(format, inputs?, &mut sink)?;
    let (writer, header) = sink.end(format.name())?;
    writer.finish(header)
}

/// Imports bytes in memory, for tests and fuzzing. Returns the header and the trace file.
///
/// # Errors
/// If the bytes do not match the format.
#[doc(hidden)]
pub fn convert_bytes(input: &[u8], format: Format) -> Result<(Header, Vec<u8>), TraceError> {
    let mut sink = Sink::new(TraceWriter::to(Vec::new(), "memory")?);
    read(format, vec![("input".to_owned(), input)], &mut sink)?;
    let (writer, header) = sink.end(format.name())?;
    writer.finish_into(header)
}

/// If `path` is named `NAME.blktrace.N`, returns the files of all CPUs of this trace in the order
/// of `N`, which is the number of the CPU. Otherwise returns only `path`.
fn files_of_cpus(path: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let fail = |cause| TraceError::reading(&path.display().to_string(), cause);
    let cpu = |name: &str| name.parse::<u32>().ok();
    let name =
        path.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit_once('.'));
    let Some((stem, _)) =
        name.filter(|(stem, number)| stem.ends_with(".blktrace") && cpu(number).is_some())
    else {
        return Ok(vec![path.to_owned()]);
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(stem)?.strip_prefix('.'));
        if let Some(number) = number.and_then(cpu) {
            found.push((number, folder.join(&name)));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn read<'a, W: Write + Send>(
    format: Format,
    inputs: Vec<(String, impl BufRead + 'a)>,
    sink: &mut Sink<W>,
) -> Result<(), TraceError> {
    let input = |(name, bytes)| blktrace::Input { name, bytes: Box::new(bytes) as Box<dyn Read> };
    if format == Format::Blktrace {
        return blktrace::read(inputs.into_iter().map(input).collect(), sink);
    }
    for (name, bytes) in inputs {
        let lines = &mut Lines::new(bytes, &name);
        match format {
            Format::Csv => csv::read(lines, sink),
            Format::FioLog => fio::read(lines, sink),
            Format::Blkparse => blkparse::read(lines, sink),
            Format::Blktrace => Ok(()),
            Format::Strace => strace::read(lines, sink),
            Format::Msr => research::read(Published::Msr, lines, sink),
            Format::Systor => research::read(Published::Systor, lines, sink),
            Format::Alibaba => research::read(Published::Alibaba, lines, sink),
            Format::Tencent => research::read(Published::Tencent, lines, sink),
        }?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
