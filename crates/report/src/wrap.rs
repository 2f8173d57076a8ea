//! Wraps text to the width of a terminal.
//!
//! Words are kept whole. A word that is longer than the width gets a separate line.

/// Wraps text to lines of at most `width` characters. The first line starts with `prefix`, and all
/// other lines are indented by the width of `prefix`.
pub fn wrapped(width: usize, prefix: &str, text: &str) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let indent = " ".repeat(length(prefix));
    let (mut lines, mut line): (Vec<String>, String) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && length(prefix) + length(&line) + 1 + length(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    let indented = |(index, line): (usize, String)| {
        let prefix = if index == 0 { prefix } else { indent.as_str() };
        format!("{prefix}{line}")
    };
    lines.into_iter().enumerate().map(indented).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_and_indented() {
        let lines = wrapped(40, "  - ", &"word ".repeat(40));
        assert!(lines.len() > 4 && lines[1].starts_with("    word"), "{lines:?}");
        assert!(lines.iter().all(|line| line.len() <= 40));
    }

    #[test]
    fn characters_count_and_not_bytes() {
        assert_eq!(wrapped(12, "± ", "µµµ µµµ µµµ"), ["± µµµ µµµ", "  µµµ"]);
    }
}
