//! Prints results to stdout and everything else to stderr.
//!
//! Progress is shown as a bar on a terminal. If stderr is not a terminal, progress is printed as
//! one line per minute. With `--quiet`, no progress is shown. The crate anstream removes colours if
//! NO_COLOR is set or the stream is not a terminal.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use analysis::units;
use cpucost::rusage::ProcessTime;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use ioengine::{Clock, Monotonic};
use report::Charset;
use workload::Progress as TrialProgress;

use crate::failure::{Failure, Outcome};
use crate::terminal;

/// Time between progress lines if stderr is not a terminal (ns).
const LINE_EVERY_NS: u64 = 60_000_000_000;

/// Prints messages and progress to stderr.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    quiet: bool,
}

impl Console {
    /// Creates a console. A quiet console prints only warnings.
    pub fn new(quiet: bool) -> Console {
        Console { quiet }
    }

    /// Prints a line of information, unless the console is quiet.
    pub fn say(&self, text: impl AsRef<str>) {
        if !self.quiet {
            write_line(&mut anstream::stderr(), &terminal::for_stderr(text.as_ref()));
        }
    }

    /// Prints a warning.
    pub fn warn(&self, text: impl AsRef<str>) {
        write_line(&mut anstream::stderr(), &format!("halfpower: {}", text.as_ref()));
    }

    /// Creates a progress bar for work that takes about `total_ns`.
    pub fn progress(&self, total_ns: u64) -> Progress {
        Progress::new(self.quiet, Some(total_ns))
    }

    /// Creates a progress bar for work of unknown duration.
    pub fn open_progress(&self) -> Progress {
        Progress::new(self.quiet, None)
    }
}

/// Prints an error.
pub fn error(text: &str) {
    write_line(&mut anstream::stderr(), &format!("halfpower: {text}"));
}

/// Whether data for stdout were lost, as [`lost_data`] reports.
static LOST: AtomicBool = AtomicBool::new(false);

/// Prints data to stdout. A closed pipe is ignored. Other write errors are reported by
/// [`lost_data`].
pub fn data(text: &str) {
    let mut stream = anstream::stdout();
    let written = writeln!(stream, "{}", printable(text)).and_then(|()| stream.flush());
    note(&written);
}

/// Prints the report of a survey or study to stdout. On a terminal, colours highlight verdicts,
/// headings, doubts, results of claims, and words that `halfpower explain` knows.
pub fn result(text: &str) {
    let coloured: Vec<String> = printable(text).lines().map(terminal::coloured).collect();
    let mut stream = anstream::stdout();
    let written = writeln!(stream, "{}", coloured.join("\n")).and_then(|()| stream.flush());
    note(&written);
}

/// Escapes all control characters except line ends and tabs. Names of files, jobs and hosts may
/// contain such characters, and a terminal would interpret them.
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

/// Prints a line of data to stdout. The line may be invalid UTF-8, because it may be a file name.
pub fn bytes(line: &[u8]) {
    let mut stream = std::io::stdout().lock();
    let written = stream.write_all(&[line, b"\n"].concat()).and_then(|()| stream.flush());
    note(&written);
}

/// A buffered stream to standard output. As in [`data`], a closed pipe is ignored, and
/// [`lost_data`] reports other write errors. After an error, all further data are discarded.
#[derive(Debug)]
pub struct DataStream {
    out: std::io::BufWriter<std::io::Stdout>,
    has_failed: bool,
}

impl DataStream {
    /// Creates a stream to the standard output of this process.
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

/// Sets [`LOST`] if a write to stdout lost data.
fn note(written: &std::io::Result<()>) {
    if ioengine::stdio::stdout_was_closed() {
        LOST.store(true, Ordering::Relaxed);
    }
    if written.as_ref().is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
        LOST.store(true, Ordering::Relaxed);
    }
}

/// Checks that standard output was open when the program started. Otherwise all output would be
/// lost silently, because the Rust runtime replaces a closed standard output by /dev/null.
///
/// # Errors
/// If standard output was closed.
pub fn check_stdout() -> Outcome<()> {
    if ioengine::stdio::stdout_was_closed() {
        return Err(Failure::failed("standard output is closed; redirect it to a file or a pipe"));
    }
    Ok(())
}

/// Converts a write error of standard output to a [`Failure`].
pub fn cannot_write(error: &std::io::Error) -> Failure {
    let cause = ioengine::error::cause(error);
    Failure::failed(format!("writing to standard output: {cause}; redirect it to another file"))
}

/// Prints the plan (`--plan`) of a command that prints information and changes nothing.
pub fn plan_to_print() {
    data("this command only prints information; nothing is touched");
}

/// Prints the last line of a plan (`--plan`). The line contains the paths of the HTML page and the
/// database that the command would write.
pub fn plan_to_write(page: Option<&Path>, db: Option<&Path>) {
    let page = page.map(|page| format!("the page {}", page.display()));
    let db = db.map(|db| format!("the database {}", db.display()));
    let files: Vec<String> = page.into_iter().chain(db).collect();
    let files = files.join(" and ");
    let written = if files.is_empty() { files } else { format!("write {files}; ") };
    data(&format!("{written}nothing was done"));
}

/// Returns whether data for stdout were lost, for example because the disk was full or because
/// stdout was closed when the program started.
pub fn lost_data() -> bool {
    LOST.load(Ordering::Relaxed)
}

fn write_line(stream: &mut impl Write, text: &str) {
    // A failure to write to stderr cannot be reported.
    let _ = writeln!(stream, "{}", printable(text)).and_then(|()| stream.flush());
}

/// Shows the progress of long work: on a terminal as a bar with a live view, otherwise as one line
/// per minute.
///
/// The live view shows the current measurement with its rate and mean latency, the CPU use of this
/// process, a sparkline of the rate, and the best result so far.
#[derive(Debug)]
pub struct Progress {
    lines: MultiProgress,
    bar: ProgressBar,
    live: Live,
    rates: ProgressBar,
    found: ProgressBar,
    clock: Monotonic,
    start_ns: u64,
    /// Estimated total time of the work (ns). None if unknown.
    total_ns: Option<u64>,
    may_show: bool,
    /// Whether a terminal shows the live view.
    is_live: bool,
    prints_lines: bool,
    next_line_ns: u64,
    /// The best result so far. Empty if there is no result.
    best: String,
}

/// Number of steps of the progress bar from empty to full.
const STEPS: u64 = 1000;
/// Minimum duration of work for which a progress bar is shown (ns). In shorter work, the bar would
/// only flicker.
const SHOWN_NS: u64 = 2_000_000_000;

impl Progress {
    fn new(quiet: bool, total_ns: Option<u64>) -> Progress {
        let clock = Monotonic::new();
        let terminal = std::io::stderr().is_terminal();
        let lines = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let line = |template: &str| {
            let bar = lines.add(ProgressBar::new(STEPS));
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        };
        let bar = line("{bar:20} {percent:>3}% {wide_msg}");
        let [rates, found] = [line("{wide_msg}"), line("{wide_msg}")];
        let start_ns = clock.now_ns();
        let next_line_ns = start_ns + LINE_EVERY_NS;
        let (may_show, prints_lines) = (!quiet && terminal, !quiet && !terminal);
        let (live, best, is_live) =
            (Live::new(terminal::charset_of_locale()), String::new(), may_show);
        Progress {
            lines,
            bar,
            live,
            rates,
            found,
            clock,
            start_ns,
            total_ns,
            may_show,
            is_live,
            prints_lines,
            next_line_ns,
            best,
        }
    }

    /// Updates the text. The completed share of the work is the elapsed time divided by the
    /// estimated total time.
    pub fn update(&mut self, message: &str) {
        let passed = (self.clock.now_ns() - self.start_ns) as f64;
        self.advance(self.total_ns.map(|total_ns| passed / total_ns.max(1) as f64), message);
    }

    /// Updates the text and the completed share of the work (0 to 1, or None if unknown).
    pub fn advance(&mut self, share: Option<f64>, message: &str) {
        let now = self.clock.now_ns();
        let passed = now - self.start_ns;
        let share = share.map(|share| share.clamp(0.0, 1.0));
        // The remaining time is extrapolated from the elapsed time. During the first percent of the
        // work, it is calculated from the estimated total time instead.
        let left_ns = match (share, self.total_ns) {
            (Some(share), _) if share > 0.01 => Some(passed as f64 / share * (1.0 - share)),
            (_, Some(total_ns)) => Some(total_ns.saturating_sub(passed) as f64),
            _ => None,
        };
        let left = left_ns.map(|ns| format!("{:.0} s left, ", ns / 1e9)).unwrap_or_default();
        if self.may_show && (passed >= SHOWN_NS || self.total_ns.is_some_and(|ns| ns >= SHOWN_NS)) {
            self.may_show = false;
            self.lines.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        }
        self.bar.set_position((share.unwrap_or(0.0) * STEPS as f64) as u64);
        self.bar.set_message(format!("{left}{message}"));
        if self.prints_lines && now >= self.next_line_ns {
            self.next_line_ns += LINE_EVERY_NS;
            let best = match self.best.as_str() {
                "" => String::new(),
                best => format!("; best so far: {best}"),
            };
            write_line(&mut anstream::stderr(), &format!("halfpower: {left}{message}{best}"));
        }
    }

    /// Shows the progress of a trial. `outstanding` is the number of requests that the trial keeps
    /// in flight. If this number varies, pass None, and no mean latency is shown.
    pub fn observe(&mut self, at: TrialProgress, outstanding: Option<u64>) {
        if !self.is_live {
            return;
        }
        self.live.add(at, self.clock.now_ns(), ProcessTime::now().total_ns);
        if let Some(text) = self.live.text(outstanding) {
            self.rates.set_message(text);
        }
    }

    /// Shows the best result so far, such as "reads 2.1 GiB/s (direct, 1 MiB x depth 8)".
    pub fn so_far(&mut self, best: &str) {
        if self.best != best {
            best.clone_into(&mut self.best);
            self.found.set_message(format!("best so far: {best}"));
        }
    }

    /// Removes the bar and the live view.
    pub fn finish(&self) {
        for line in [&self.bar, &self.rates, &self.found] {
            line.finish_and_clear();
        }
    }
}

/// Time without a completed request after which the rate is shown as zero (ns).
const STILL_NS: u64 = 1_000_000_000;
/// Maximum number of values in a sparkline.
const SPARKS: usize = 18;
/// The characters of a sparkline, from the lowest value to the highest.
const SPARK_CHARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The characters of an ASCII sparkline, from the lowest value to the highest.
const SPARK_CHARS_ASCII: [char; 8] = ['_', '.', '-', ':', '=', '+', '*', '#'];

/// The recent progress of the trials, which the live view shows.
#[derive(Debug)]
struct Live {
    charset: Charset,
    last: TrialProgress,
    last_cpu: Option<(u64, u64)>,
    /// The most recent rates, oldest first (bytes per second).
    rates: VecDeque<f64>,
    requests_per_s: f64,
    /// CPU use of this process since the previous observation, as a share of one CPU.
    cpu_share: f64,
}

impl Live {
    fn new(charset: Charset) -> Live {
        Live {
            charset,
            last: TrialProgress::default(),
            last_cpu: None,
            rates: VecDeque::new(),
            requests_per_s: 0.0,
            cpu_share: 0.0,
        }
    }

    /// Adds an observation that was made at `now_ns`. `cpu_ns` is the CPU time that this process
    /// has used since its start.
    fn add(&mut self, at: TrialProgress, now_ns: u64, cpu_ns: u64) {
        // `elapsed_ns` restarts from zero in each trial, so a smaller value means that a new trial
        // began.
        let is_new = at.elapsed_ns < self.last.elapsed_ns;
        let last = if is_new { TrialProgress::default() } else { self.last };
        let passed_ns = at.elapsed_ns.saturating_sub(last.elapsed_ns);
        // If no request completed since the last observation, the previous rate is shown until
        // `STILL_NS` have passed. A request may be slow, or the final flush may be running.
        if at.requests != last.requests || passed_ns >= STILL_NS {
            self.last = at;
            let seconds = passed_ns.max(1) as f64 / 1e9;
            self.rates.push_back(at.bytes.saturating_sub(last.bytes) as f64 / seconds);
            self.requests_per_s = at.requests.saturating_sub(last.requests) as f64 / seconds;
            if self.rates.len() > SPARKS {
                self.rates.pop_front();
            }
        } else if is_new {
            self.last = TrialProgress::default();
        }
        if let Some((then_ns, then_cpu_ns)) = self.last_cpu.replace((now_ns, cpu_ns)) {
            let passed = now_ns.saturating_sub(then_ns).max(1) as f64;
            self.cpu_share = cpu_ns.saturating_sub(then_cpu_ns) as f64 / passed;
        }
    }

    /// Formats the line of the live view. Returns None before the first observation.
    fn text(&self, outstanding: Option<u64>) -> Option<String> {
        let rate = *self.rates.back()?;
        // Little's law: requests in flight = rate x mean latency.
        let per_s = Some(self.requests_per_s).filter(|per_s| *per_s > 0.0);
        let latency = outstanding.zip(per_s).map(|(outstanding, per_s)| {
            format!("mean latency {}  ", units::time(outstanding as f64 * 1e9 / per_s))
        });
        Some(format!(
            "{}  {} requests/s  {}CPU {:.0}%  {}",
            units::rate_mib(rate),
            units::count(self.requests_per_s),
            latency.unwrap_or_default(),
            100.0 * self.cpu_share,
            sparkline(&self.rates, self.charset)
        ))
    }
}

/// Formats values as a line of bars. The scale extends from zero to the highest value.
fn sparkline(values: &VecDeque<f64>, charset: Charset) -> String {
    let chars = match charset {
        Charset::Unicode => SPARK_CHARS,
        Charset::Ascii => SPARK_CHARS_ASCII,
    };
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let bar = |value: &f64| {
        let step = (value / most * (chars.len() - 1) as f64).round() as usize;
        chars[step.min(chars.len() - 1)]
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\tb\nä"), "a\tb\nä");
        assert_eq!(printable("\u{1b}[31mred\r\u{9b}"), "\\u{1b}[31mred\\r\\u{9b}");
    }

    fn at(elapsed_ns: u64, bytes: u64) -> TrialProgress {
        TrialProgress { elapsed_ns, bytes, requests: bytes / 4096 }
    }

    #[test]
    fn the_live_view_shows_the_rate_since_the_last_observation() {
        let mut live = Live::new(Charset::Unicode);
        assert_eq!(live.text(Some(1)), None);
        live.add(at(100_000_000, 100 << 20), 0, 0);
        live.add(at(200_000_000, 300 << 20), 100_000_000, 50_000_000);
        let text = live.text(Some(8)).unwrap();
        // 200 MiB are 51,200 requests of 4 KiB. If 51,200 requests complete in 0.1 s with 8 in
        // flight, the mean latency is 15.6 us.
        assert!(!live.text(None).unwrap().contains("latency"));
        for part in ["2000 MiB/s", "512k requests/s", "mean latency 15.6 us", "CPU 50%", "▅█"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_rate_of_zero_is_shown_only_after_a_while() {
        let mut live = Live::new(Charset::Unicode);
        live.add(at(100_000_000, 100 << 20), 0, 0);
        live.add(at(200_000_000, 100 << 20), 1, 0);
        assert!(live.text(None).unwrap().contains("1000 MiB/s"), "{:?}", live.text(None));
        live.add(at(1_200_000_000, 100 << 20), 2, 0);
        assert!(live.text(None).unwrap().starts_with("0 MiB/s"), "{:?}", live.text(None));
    }

    #[test]
    fn a_new_trial_starts_from_zero() {
        let mut live = Live::new(Charset::Unicode);
        live.add(at(900_000_000, 900 << 20), 0, 0);
        live.add(at(100_000_000, 50 << 20), 1, 0);
        assert!(live.text(None).unwrap().contains("500 MiB/s"), "{:?}", live.text(None));
    }
}
