//! Tests the output in a real terminal: a survey must fit 80 and 40 columns, and the live view must
//! show the current measurement. If HALFPOWER_ARTEFACTS is set to a directory, screenshots are
//! written to its subdirectory `terminal` as text, and as PNG if Chromium is installed.
//!
//! tmux provides the terminal. If a line does not fit, tmux wraps the line on the screen, but
//! returns the whole line to the tests. The tests can therefore detect lines that do not fit.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fixture::{Place, or_skip, pause, temporary_folder, wait_until};
use crate::pages::{browse, browser};

/// A terminal in which a program runs. Dropping this value ends the terminal and the program.
struct Terminal {
    server: String,
}

impl Terminal {
    /// Starts a terminal of this size in the working directory of `place`, and runs
    /// `halfpower LINE` in it.
    fn new(place: &Place, (columns, rows): (u32, u32), line: &str) -> Result<Terminal, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let server = format!("halfpower-{}-{number}", std::process::id());
        let program = env!("CARGO_BIN_EXE_halfpower");
        let command = format!("LC_ALL=C.UTF-8 {program} {line}; echo ENDED; sleep 600");
        let mut tmux = Command::new("tmux");
        tmux.args(["-L", &server, "-f", "/dev/null", "new-session", "-d"]);
        tmux.args(["-x", &columns.to_string(), "-y", &rows.to_string(), &command]);
        let status = tmux.current_dir(place.path(".")).stdin(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => Ok(Terminal { server }),
            Ok(status) => Err(format!("tmux ended with {status}")),
            Err(error) => Err(format!("tmux: {error}; install tmux")),
        }
    }

    /// Runs tmux on this terminal and returns its output.
    fn tmux(&self, words: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.server]).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until the screen contains these words, and returns the screen.
    fn screen_with(&self, words: &str) -> String {
        let mut screen = String::new();
        wait_until(words, || {
            pause(100);
            screen = self.tmux(&["capture-pane", "-p"]);
            screen.contains(words)
        });
        screen
    }

    /// Returns all lines that were printed so far, with wrapped lines joined.
    fn lines(&self) -> Vec<String> {
        let text = self.tmux(&["capture-pane", "-p", "-J", "-S", "-"]);
        text.lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Saves a screen as text and as an image, if HALFPOWER_ARTEFACTS is set.
fn keep(name: &str, screen: &str) {
    let Some(artefacts) = std::env::var_os("HALFPOWER_ARTEFACTS") else { return };
    let target = Path::new(&artefacts).join("terminal");
    fs::create_dir_all(&target).unwrap();
    fs::write(target.join(format!("{name}.txt")), screen).unwrap();
    if browser().is_ok() {
        let folder = temporary_folder();
        let text = screen.replace('&', "&amp;").replace('<', "&lt;");
        let page =
            format!("<!DOCTYPE html><meta charset=\"utf-8\"><title>x</title><pre>{text}</pre>");
        fs::write(folder.path().join("screen.html"), page).unwrap();
        let picture = format!("--screenshot={}", target.join(format!("{name}.png")).display());
        browse(folder.path(), "screen.html", &["--window-size=900,1600", &picture]);
    }
}

#[test]
#[ignore = "a campaign, with tmux"]
fn a_survey_and_a_study_fit_terminals_of_80_and_of_40_columns() {
    for size in [(80, 24), (40, 24)] {
        for (name, line, last) in [
            ("survey", "survey sim:sata-ssd --quick --no-store", "trust"),
            ("study", "study depth sim:sata-ssd --quick --no-store", "halfpower explain depth"),
        ] {
            let (place, columns) = (Place::new(), size.0);
            let terminal = or_skip!(Terminal::new(&place, size, line));
            let screen = terminal.screen_with("ENDED");
            let lines = terminal.lines();
            let long = lines.iter().find(|line| line.chars().count() > columns as usize);
            assert_eq!(long, None, "{name} at {columns} columns");
            let text = lines.join(" ");
            let words: Vec<&str> = text.split_whitespace().collect();
            assert!(words.join(" ").contains(last), "{name} at {columns} columns:\n{text}");
            // Charts are printed to a terminal by default.
            assert!(text.contains('●'), "{text}");
            keep(&format!("{name}-{columns}-columns"), &lines.join("\n"));
            keep(&format!("{name}-{columns}-columns-last-screen"), &screen);
        }
    }
}

#[test]
#[ignore = "a campaign, with tmux"]
fn the_live_view_shows_the_point_its_rate_and_the_best_so_far() {
    let place = Place::new();
    let line = "survey . --quick --size 64m --no-store";
    let terminal = or_skip!(Terminal::new(&place, (80, 24), line));
    terminal.screen_with("so far");
    let screen = terminal.screen_with("mean latency");
    for part in ["s left", "requests/s", "so far", "CPU", "depth"] {
        assert!(screen.contains(part), "{part}:\n{screen}");
    }
    keep("live-view-80-columns", &screen);
    terminal.screen_with("ENDED");
}
