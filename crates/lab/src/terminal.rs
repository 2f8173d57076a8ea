//! Formats text for a terminal: determines the width, wraps lines, and decides whether charts are
//! printed. If the output is not a terminal, text has a fixed width and no charts, so that it can
//! be compared and searched.

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::str::FromStr;

use report::Charset;

/// Minimum width of wrapped text (characters).
const WIDTH_MIN: usize = 40;
/// Maximum width of wrapped text (characters), because longer lines are hard to read. This width is
/// also used without a terminal.
const WIDTH_MAX: usize = 96;

/// When charts are printed, and with which characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charts {
    /// Charts are printed only on a terminal, in Unicode or ASCII as its locale requires.
    #[default]
    Auto,
    /// Charts are always printed, with Unicode symbols.
    Unicode,
    /// Charts are always printed, in ASCII.
    Ascii,
    /// Charts are never printed.
    Never,
}

impl Charts {
    /// Returns the characters for charts. `None` if no charts are printed.
    pub fn charset(self) -> Option<Charset> {
        match self {
            Charts::Unicode => Some(Charset::Unicode),
            Charts::Ascii => Some(Charset::Ascii),
            Charts::Auto if std::io::stdout().is_terminal() => Some(charset_of_locale()),
            Charts::Auto | Charts::Never => None,
        }
    }
}

impl FromStr for Charts {
    type Err = String;

    fn from_str(text: &str) -> Result<Charts, String> {
        match text {
            "auto" => Ok(Charts::Auto),
            "unicode" => Ok(Charts::Unicode),
            "ascii" => Ok(Charts::Ascii),
            "never" => Ok(Charts::Never),
            _ => Err(format!("'{text}' is unknown; use auto, unicode, ascii or never")),
        }
    }
}

/// Returns Unicode if the locale of the environment uses UTF-8, else ASCII.
pub(crate) fn charset_of_locale() -> Charset {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let set = names.iter().filter_map(std::env::var_os).find(|value| !value.is_empty());
    let locale = set.unwrap_or_default().to_string_lossy().to_lowercase();
    if locale.contains("utf-8") || locale.contains("utf8") {
        Charset::Unicode
    } else {
        Charset::Ascii
    }
}

/// Colours a line of a survey or study with escape sequences. The output stream removes the
/// sequences if colours are off (NO_COLOR) or if the stream is not a terminal.
pub(crate) fn coloured(line: &str) -> String {
    let (bold, dim, end) = ("\x1b[1m", "\x1b[2m", "\x1b[0m");
    let (red, yellow, green) = ("\x1b[31m", "\x1b[33m", "\x1b[32m");
    let is_heading = ["Findings", "In short"].contains(&line) || line.starts_with("Advice, ");
    if is_heading {
        return format!("{bold}{line}{end}");
    }
    let ends = [(": valid", green), (": suspect", yellow), (": invalid", red)];
    if let Some((word, colour)) = ends.iter().find(|(word, _)| line.ends_with(word)) {
        let start = &line[..line.len() - word.len()];
        return format!("{bold}{start}{end}: {colour}{}{end}", &word[2..]);
    }
    if line.starts_with("  ! ") {
        return format!("{yellow}{line}{end}");
    }
    if let Some(claim) = line.strip_prefix("  = claim ") {
        // The verdict ends at the first colon.
        let verdict = claim.split(':').next().unwrap_or_default();
        let colour = if verdict.ends_with("does not hold") { red } else { green };
        return format!("  {colour}={end} claim {claim}");
    }
    match line.rfind('[').filter(|_| line.ends_with(']')) {
        Some(at) => format!("{}{dim}{}{end}", &line[..at], &line[at..]),
        None => line.to_owned(),
    }
}

/// Returns the width for text on standard output (characters).
pub fn width() -> usize {
    width_of(&std::io::stdout()).unwrap_or(WIDTH_MAX)
}

/// Returns the width of a terminal, limited to between `WIDTH_MIN` and `WIDTH_MAX` (characters).
/// `None` for a file or pipe.
fn width_of(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    let of_terminal = || terminal_size::terminal_size_of(stream);
    let size = stream.is_terminal().then(of_terminal).flatten();
    size.map(|(width, _)| usize::from(width.0).clamp(WIDTH_MIN, WIDTH_MAX))
}

/// Formats a message for standard error. On a terminal, a long line is wrapped. In a file, the
/// message stays on one line, so that grep finds the whole message. A text with several lines is
/// not changed.
pub(crate) fn for_stderr(text: &str) -> String {
    match width_of(&std::io::stderr()) {
        Some(width) if text.chars().count() > width && !text.contains('\n') => {
            report::wrapped(width, "", text).join("\n")
        }
        _ => text.to_owned(),
    }
}

/// Formats a line for standard output. On a terminal, a long line is wrapped, and all lines but the
/// first are indented. In a file or pipe, the text stays on one line, so that grep finds the whole
/// text.
pub fn for_stdout(text: &str) -> String {
    match width_of(&std::io::stdout()) {
        Some(width) => folded(width, text),
        None => text.to_owned(),
    }
}

/// Wraps a line to a width, and indents all lines but the first. A line that fits is not changed.
fn folded(width: usize, text: &str) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let (first, indent) = (report::wrapped(width, "", text), "    ");
    let after = first.first().and_then(|start| text.strip_prefix(start.as_str()));
    let Some(rest) = after else { return first.join("\n") };
    let rest = report::wrapped(width, indent, rest);
    [&first[..1], &rest].concat().join("\n")
}

/// Wraps text to the width of standard output. The first line begins with `prefix`, and the other
/// lines are indented by the width of `prefix`.
pub fn wrapped(prefix: &str, text: &str) -> Vec<String> {
    report::wrapped(width(), prefix, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_folded_with_an_indent_and_loses_no_word() {
        assert_eq!(folded(40, "read 4 KiB: valid"), "read 4 KiB: valid");
        let long =
            "read 4 KiB, depth 1, sync, direct: 100 MiB/s (105 MB/s), 25.6k requests/s, valid";
        let lines = folded(40, long);
        assert!(lines.lines().all(|line| line.chars().count() <= 40), "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.starts_with("    ")), "{lines}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&lines), words(long));
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let lines = ["x (y): valid", "Findings", "  ! noisy: 3%", "  - fast [best]", "plain"];
        for line in lines {
            let plain: String = coloured(line)
                .split('\x1b')
                .enumerate()
                .map(|(index, part)| match part.split_once('m').filter(|_| index > 0) {
                    Some((_, text)) => text,
                    None => part,
                })
                .collect();
            assert_eq!(plain, line);
        }
        assert!(coloured("x: suspect").contains("\x1b[33m"));
        assert_eq!(coloured("plain"), "plain");
    }
}
