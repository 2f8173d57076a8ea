//! Output to the terminal: results to stdout, everything else to stderr.
//!
//! Progress is a bar on a terminal, one line a minute elsewhere, and nothing with `--quiet`.
//! Colours follow NO_COLOR and whether the stream is a terminal (the anstream crate decides).

use std::borrow::Cow;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ioengine::{Clock, Monotonic};

use crate::failure::{Failure, Outcome};

/// Time between progress lines without a terminal (ns).
const LINE_EVERY_NS: u64 = 60_000_000_000;

/// Messages and progress on stderr.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    quiet: bool,
}

impl Console {
    /// A console; a quiet console prints only warnings and errors.
    pub fn new(quiet: bool) -> Console {
        Console { quiet }
    }

    /// Prints an informational line.
    pub fn say(&self, text: impl AsRef<str>) {
        if !self.quiet {
            write_line(&mut anstream::stderr(), text.as_ref());
        }
    }

    /// Prints a warning.
    pub fn warn(&self, text: impl AsRef<str>) {
        write_line(&mut anstream::stderr(), &format!("halfpower: {}", text.as_ref()));
    }

    /// A progress bar for work that takes `total_ns`.
    pub fn progress(&self, total_ns: u64) -> Progress {
        Progress::new(self.quiet, Some(total_ns))
    }

    /// A progress bar for work of unknown duration.
    pub fn open_progress(&self) -> Progress {
        Progress::new(self.quiet, None)
    }
}

/// Prints an error.
pub fn error(text: &str) {
    write_line(&mut anstream::stderr(), &format!("halfpower: {text}"));
}

/// Whether data could not be written to stdout.
static LOST: AtomicBool = AtomicBool::new(false);

/// Prints data, the only output on stdout. A closed pipe is not an error; for other write errors
/// see [`lost_data`].
pub fn data(text: &str) {
    let mut stream = anstream::stdout();
    let written = writeln!(stream, "{}", printable(text)).and_then(|()| stream.flush());
    note(&written);
}

/// A text without control characters other than line ends and tabs. Names of files, jobs and hosts
/// may contain any, which a terminal would obey.
fn printable(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for c in text.chars() {
        if is_harmful(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// Prints a line of data that need not be UTF-8, such as a file name.
pub fn bytes(line: &[u8]) {
    let mut stream = std::io::stdout().lock();
    let written = stream.write_all(&[line, b"\n"].concat()).and_then(|()| stream.flush());
    note(&written);
}

/// Standard output for data of any length. As with [`data`], a closed pipe is not an error, and
/// other write errors are found by [`lost_data`]; what follows them is discarded.
#[derive(Debug)]
pub struct DataStream {
    out: std::io::BufWriter<std::io::Stdout>,
    has_failed: bool,
}

impl DataStream {
    /// Standard output of this process.
    pub fn new() -> DataStream {
        DataStream { out: std::io::BufWriter::new(std::io::stdout()), has_failed: false }
    }

    fn keep(&mut self, written: &std::io::Result<()>) {
        note(written);
        self.has_failed |= written.is_err();
    }
}

impl Default for DataStream {
    fn default() -> DataStream {
        DataStream::new()
    }
}

impl Write for DataStream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if !self.has_failed {
            let written = self.out.write_all(bytes);
            self.keep(&written);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if !self.has_failed {
            let flushed = self.out.flush();
            self.keep(&flushed);
        }
        Ok(())
    }
}

/// Remembers whether a write to stdout failed.
fn note(written: &std::io::Result<()>) {
    if ioengine::stdio::stdout_was_closed() {
        LOST.store(true, Ordering::Relaxed);
    }
    if written.as_ref().is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
        LOST.store(true, Ordering::Relaxed);
    }
}

/// Fails if standard output was closed when the program started. The Rust runtime opens /dev/null
/// in its place, so output would be lost silently.
///
/// # Errors
/// A closed standard output.
pub fn check_stdout() -> Outcome<()> {
    if ioengine::stdio::stdout_was_closed() {
        return Err(Failure::failed("standard output is closed; redirect it to a file or a pipe"));
    }
    Ok(())
}

/// The failure of a write to standard output.
pub fn cannot_write(error: &std::io::Error) -> Failure {
    let cause = ioengine::error::cause(error);
    Failure::failed(format!("writing to standard output: {cause}; redirect it elsewhere"))
}

/// Prints the plan (`--plan`) of a command that only prints and changes nothing.
pub fn plan_to_print() {
    data("this command only prints; nothing is touched");
}

/// Whether writing to stdout failed: the disk is full, or stdout was closed when the program
/// started.
pub fn lost_data() -> bool {
    LOST.load(Ordering::Relaxed)
}

fn write_line(stream: &mut impl Write, text: &str) {
    // A failure to write to stderr cannot be reported.
    let _ = writeln!(stream, "{}", printable(text)).and_then(|()| stream.flush());
}

/// A progress bar, or one line per minute without a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    clock: Monotonic,
    start_ns: u64,
    /// Estimated total time (ns); None if unknown.
    total_ns: Option<u64>,
    may_show: bool,
    lines: bool,
    next_line_ns: u64,
}

/// Steps of the progress bar from empty to full.
const STEPS: u64 = 1000;
/// Minimum duration for a progress bar (ns); shorter bars only flicker.
const SHOWN_NS: u64 = 2_000_000_000;

impl Progress {
    fn new(quiet: bool, total_ns: Option<u64>) -> Progress {
        let clock = Monotonic::new();
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
        let template = "{bar:30} {percent:>3}% {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        let start_ns = clock.now_ns();
        let next_line_ns = start_ns + LINE_EVERY_NS;
        let (may_show, lines) = (!quiet && terminal, !quiet && !terminal);
        Progress { bar, clock, start_ns, total_ns, may_show, lines, next_line_ns }
    }

    /// Updates the text; the share done follows from the elapsed time.
    pub fn update(&mut self, message: &str) {
        let passed = (self.clock.now_ns() - self.start_ns) as f64;
        self.advance(self.total_ns.map(|total_ns| passed / total_ns.max(1) as f64), message);
    }

    /// Updates the text and the share done (0 to 1), if that is known.
    pub fn advance(&mut self, share: Option<f64>, message: &str) {
        let now = self.clock.now_ns();
        let passed = now - self.start_ns;
        let share = share.map(|share| share.clamp(0.0, 1.0));
        // Extrapolates from the time used so far; at the start uses the estimated total.
        let left_ns = match (share, self.total_ns) {
            (Some(share), _) if share > 0.01 => Some(passed as f64 / share * (1.0 - share)),
            (_, Some(total_ns)) => Some(total_ns.saturating_sub(passed) as f64),
            _ => None,
        };
        let left = left_ns.map(|ns| format!("{:.0} s left, ", ns / 1e9)).unwrap_or_default();
        if self.may_show && (passed >= SHOWN_NS || self.total_ns.is_some_and(|ns| ns >= SHOWN_NS)) {
            self.may_show = false;
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        }
        self.bar.set_position((share.unwrap_or(0.0) * STEPS as f64) as u64);
        self.bar.set_message(format!("{left}{message}"));
        if self.lines && now >= self.next_line_ns {
            self.next_line_ns += LINE_EVERY_NS;
            write_line(&mut anstream::stderr(), &format!("halfpower: {left}{message}"));
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\tb\nä"), "a\tb\nä");
        assert_eq!(printable("\u{1b}[31mred\r\u{9b}"), "\\u{1b}[31mred\\r\\u{9b}");
    }
}
