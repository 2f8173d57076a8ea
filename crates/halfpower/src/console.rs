//! What goes to the terminal: results to stdout, everything else to stderr.
//!
//! Progress is a bar on a terminal, one line a minute elsewhere, and nothing with `--quiet`.
//! Colours follow NO_COLOR and whether the stream is a terminal (the anstream crate decides).

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ioengine::{Clock, Monotonic};

/// One progress line for this long, where there is no terminal (ns).
const LINE_EVERY_NS: u64 = 60_000_000_000;

/// Where words go.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    quiet: bool,
}

impl Console {
    /// A console; a quiet one says only warnings and errors.
    pub fn new(quiet: bool) -> Console {
        Console { quiet }
    }

    /// A line about what is going on.
    pub fn say(&self, text: impl AsRef<str>) {
        if !self.quiet {
            write_line(&mut anstream::stderr(), text.as_ref());
        }
    }

    /// A line that must be seen.
    pub fn warn(&self, text: impl AsRef<str>) {
        write_line(&mut anstream::stderr(), &format!("halfpower: {}", text.as_ref()));
    }

    /// A bar for something that takes `total_ns` in all.
    pub fn progress(&self, total_ns: u64) -> Progress {
        Progress::new(self.quiet, total_ns)
    }
}

/// The last word of a failing program.
pub fn error(text: &str) {
    write_line(&mut anstream::stderr(), &format!("halfpower: {text}"));
}

/// Whether data could not be written to stdout.
static LOST: AtomicBool = AtomicBool::new(false);

/// Data: the only thing that goes to stdout. A reader that went away is no failure; data that
/// could not be written is, see [`lost_data`].
pub fn data(text: &str) {
    let mut stream = anstream::stdout();
    let written = writeln!(stream, "{text}").and_then(|()| stream.flush());
    if written.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
        LOST.store(true, Ordering::Relaxed);
    }
}

/// The plan of a verb that only prints.
pub fn plan_to_print() {
    data("prints only; nothing is touched");
}

/// Whether data was lost on its way to stdout (a full disk, for one).
pub fn lost_data() -> bool {
    LOST.load(Ordering::Relaxed)
}

fn write_line(stream: &mut impl Write, text: &str) {
    // There is no place left to say that saying it failed.
    let _ = writeln!(stream, "{text}").and_then(|()| stream.flush());
}

/// A progress bar, or a line a minute.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    clock: Monotonic,
    start_ns: u64,
    total_ns: u64,
    lines: bool,
    next_line_ns: u64,
}

impl Progress {
    fn new(quiet: bool, total_ns: u64) -> Progress {
        let clock = Monotonic::new();
        let terminal = std::io::stderr().is_terminal();
        // Under two seconds a bar would only flicker.
        let shown = !quiet && terminal && total_ns >= 2_000_000_000;
        let target = if shown {
            ProgressDrawTarget::stderr_with_hz(5)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(total_ns / 1_000_000), target);
        let template = "{bar:30} {percent:>3}% {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        let start_ns = clock.now_ns();
        let next_line_ns = start_ns + LINE_EVERY_NS;
        Progress { bar, clock, start_ns, total_ns, lines: !quiet && !terminal, next_line_ns }
    }

    /// Says how far it is: the time passed decides, `message` tells what is being done.
    pub fn update(&mut self, message: &str) {
        let now = self.clock.now_ns();
        let passed = now - self.start_ns;
        let left = Duration::from_nanos(self.total_ns.saturating_sub(passed));
        let eta = format!("{} s left", left.as_secs());
        self.bar.set_position((passed / 1_000_000).min(self.total_ns / 1_000_000));
        self.bar.set_message(format!("{eta}, {message}"));
        if self.lines && now >= self.next_line_ns {
            self.next_line_ns += LINE_EVERY_NS;
            write_line(&mut anstream::stderr(), &format!("halfpower: {eta}, {message}"));
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
