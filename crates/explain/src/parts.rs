//! Splits the text of a topic into paragraphs, list items and code. The terminal and the HTML page
//! each have their own layout for these blocks.

/// A part of a topic's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A paragraph, joined into one line.
    Text(String),
    /// An item of a list, joined into one line.
    Item(String),
    /// A code block, with its line breaks.
    Code(String),
}

/// Splits a Markdown text into paragraphs, list items and fenced code blocks.
pub fn paragraphs(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut is_code, mut is_new) = (false, true);
    for line in text.lines() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_paragraphs_items_and_code() {
        let text = "One two\nthree.\n\n- first\n  item\n- second\n\n```\nfio --bs=4k\n```";
        let expected = [
            Block::Text("One two three.".to_owned()),
            Block::Item("first item".to_owned()),
            Block::Item("second".to_owned()),
            Block::Code("fio --bs=4k\n".to_owned()),
        ];
        assert_eq!(paragraphs(text), expected);
    }
}
