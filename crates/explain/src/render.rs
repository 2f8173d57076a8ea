//! Topics as text: wrapped lines for the terminal, and paragraphs for the page.

use crate::topic::{Kind, Topic};

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A paragraph, without line ends.
    Text(String),
    /// An item of a list, without line ends.
    Item(String),
    /// Code, with its line ends.
    Code(String),
}

/// The text of a topic in parts.
pub fn paragraphs(topic: &Topic) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut is_code, mut is_new) = (false, true);
    for line in topic.text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
            is_new = true;
            if is_code {
                blocks.push(Block::Code(String::new()));
            }
            continue;
        }
        match (blocks.last_mut(), line.trim(), line.strip_prefix("- ")) {
            (Some(Block::Code(code)), ..) if is_code => {
                code.push_str(line);
                code.push('\n');
            }
            (_, "", _) => is_new = true,
            (_, _, Some(item)) => {
                blocks.push(Block::Item(item.trim().to_owned()));
                is_new = false;
            }
            (Some(Block::Text(text) | Block::Item(text)), words, _) if !is_new => {
                text.push(' ');
                text.push_str(words);
            }
            (_, words, _) => {
                blocks.push(Block::Text(words.to_owned()));
                is_new = false;
            }
        }
    }
    blocks
}

/// A topic as lines of at most `width` characters; code is not wrapped.
pub fn lines(topic: &Topic, width: usize) -> Vec<String> {
    let mut lines = vec![title(topic), String::new()];
    let mut was_item = false;
    for block in paragraphs(topic) {
        let is_item = matches!(block, Block::Item(_));
        if was_item && !is_item {
            lines.push(String::new());
        }
        was_item = is_item;
        match block {
            Block::Text(text) => lines.extend(wrapped("", &text, width)),
            Block::Item(text) => {
                lines.extend(wrapped("- ", &text, width));
                continue;
            }
            Block::Code(code) => lines.extend(code.lines().map(|line| format!("    {line}"))),
        }
        lines.push(String::new());
    }
    if was_item {
        lines.push(String::new());
    }
    if !topic.source.is_empty() {
        lines.extend(wrapped("Source: ", &topic.source, width));
    }
    if !topic.see.is_empty() {
        lines.extend(wrapped("See also: ", &topic.see.join(", "), width));
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

fn title(topic: &Topic) -> String {
    let kind = match (&topic.kind, &topic.study) {
        (Kind::StudyFinding, Some(study)) => format!("finding of the study {study}"),
        (kind, _) => kind.name().to_owned(),
    };
    format!("{} ({kind})", topic.name)
}

/// Wraps text after a prefix; further lines are indented by the width of the prefix.
fn wrapped(prefix: &str, text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = prefix.to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(prefix.len())));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> Topic {
        Topic {
            kind: Kind::StudyFinding,
            name: "knee".to_owned(),
            study: Some("depth".to_owned()),
            also: Vec::new(),
            source: "R 6".to_owned(),
            see: vec!["latency".to_owned()],
            text: "One two\nthree.\n\n- first\n  item\n- second\n\n```\nfio --bs=4k\n```"
                .to_owned(),
        }
    }

    #[test]
    fn a_text_has_paragraphs_items_and_code() {
        let expected = [
            Block::Text("One two three.".to_owned()),
            Block::Item("first item".to_owned()),
            Block::Item("second".to_owned()),
            Block::Code("fio --bs=4k\n".to_owned()),
        ];
        assert_eq!(paragraphs(&topic()), expected);
    }

    #[test]
    fn lines_are_wrapped_but_code_is_not() {
        let expected = [
            "knee (finding of the study depth)",
            "",
            "One two",
            "three.",
            "",
            "- first",
            "  item",
            "- second",
            "",
            "    fio --bs=4k",
            "",
            "Source: R 6",
            "See also: latency",
        ];
        assert_eq!(lines(&topic(), 11), expected);
    }
}
