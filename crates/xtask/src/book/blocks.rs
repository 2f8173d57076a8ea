//! Finds the commands in the fenced code blocks and marked tables of a Markdown page.
//!
//! A code block with the language `console` shows a session. A line `$ COMMAND` starts a command,
//! lines that begin with `> ` continue it, and the other lines are its output. A line `...` matches
//! any number of lines of output. An HTML comment before a block or table specifies how the
//! commands are tested; see [`Mark`].

use anyhow::{Result, bail};

/// How the commands of a block or table are tested.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// A `console` block without a comment. Each command is run, and its output must equal the
    /// output in the page, except for numbers.
    Run,
    /// `<!-- sample: REASON -->`: the output depends on the machine. Each command is run. Only the
    /// first word of each unindented line in the page is compared. Unindented lines of the output
    /// must start with these words, in the same order.
    Sample,
    /// `<!-- plan -->`: each command is run with `--plan` and must succeed.
    Plan,
    /// `<!-- no-run: REASON -->`: the commands are not run.
    NoRun,
    /// A block that is not `console` and has no comment. The commands are only counted.
    Unmarked,
}

/// A command in a page.
#[derive(Debug, PartialEq)]
pub struct Command {
    /// Index of the command's first line in the page.
    pub line: usize,
    /// The shell command, with its continuation lines.
    pub text: String,
    /// Range of the line indices of the output. The end is exclusive.
    pub output: (usize, usize),
}

/// The commands of one block or table.
#[derive(Debug, PartialEq)]
pub struct Block {
    /// How the commands are tested.
    pub mark: Mark,
    /// The commands, in page order.
    pub commands: Vec<Command>,
}

/// Returns all blocks and marked tables that contain commands, in page order.
///
/// # Errors
/// If a block has no closing fence, a `console` block does not begin with a command, a mark has no
/// reason, or a block that is not `console` is marked as a sample.
pub fn parse(page: &str) -> Result<Vec<Block>> {
    let lines: Vec<&str> = page.lines().collect();
    let mut blocks = Vec::new();
    let mut mark = None;
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if let Some(info) = line.strip_prefix("```") {
            let end = (at + 1..lines.len()).find(|end| lines[*end].trim_end() == "```");
            let Some(end) = end else { bail!("line {}: the block has no closing ```", at + 1) };
            blocks.push(block(&lines, info.trim(), at + 1, end, mark.take())?);
            at = end;
        } else if line.starts_with('|') && mark.is_some() {
            let end = (at..lines.len()).find(|end| !lines[*end].starts_with('|'));
            let end = end.unwrap_or(lines.len());
            let commands = (at..end).flat_map(|row| in_row(row, lines[row])).collect();
            blocks.push(Block { mark: mark.take().unwrap_or(Mark::Unmarked), commands });
            at = end;
            continue;
        } else if !line.trim().is_empty() {
            mark = marked(line, at)?;
        }
        at += 1;
    }
    blocks.retain(|block| !block.commands.is_empty());
    Ok(blocks)
}

/// Parses a mark such as `<!-- plan -->`. None if the line is not a mark.
fn marked(line: &str, at: usize) -> Result<Option<Mark>> {
    let comment = line.trim().strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->"));
    let Some(comment) = comment.map(str::trim) else { return Ok(None) };
    let (word, reason) = comment.split_once(':').unwrap_or((comment, ""));
    let mark = match word {
        "plan" => return Ok(Some(Mark::Plan)),
        "sample" => Mark::Sample,
        "no-run" => Mark::NoRun,
        _ => return Ok(None),
    };
    if reason.trim().is_empty() {
        bail!("line {}: `{word}` needs a reason: <!-- {word}: REASON -->", at + 1);
    }
    Ok(Some(mark))
}

fn block(
    lines: &[&str],
    info: &str,
    begin: usize,
    end: usize,
    mark: Option<Mark>,
) -> Result<Block> {
    let is_session = info == "console";
    if is_session && begin < end && !lines[begin].starts_with("$ ") {
        bail!("line {}: a ```console block must begin with `$ COMMAND`", begin + 1);
    }
    let mark = mark.unwrap_or(if is_session { Mark::Run } else { Mark::Unmarked });
    if mark == Mark::Sample && !is_session {
        bail!("line {begin}: only a ```console block can have the mark `sample`");
    }
    let commands = if is_session { session(lines, begin, end) } else { listed(lines, begin, end) };
    Ok(Block { mark, commands })
}

/// Returns the commands of a `console` block, each with the line range of its output.
fn session(lines: &[&str], begin: usize, end: usize) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let mut at = begin;
    while at < end {
        let Some(first) = lines[at].strip_prefix("$ ") else {
            at += 1;
            continue;
        };
        let line = at;
        let mut text = first.to_string();
        at += 1;
        while let Some(more) = lines[at].strip_prefix("> ").filter(|_| at < end) {
            text.push('\n');
            text.push_str(more);
            at += 1;
        }
        let next = (at..end).find(|next| lines[*next].starts_with("$ ")).unwrap_or(end);
        commands.push(Command { line, text, output: (at, next) });
        at = next;
    }
    commands
}

/// Returns the commands of a block that is not `console`: all lines that start with `halfpower` or
/// `./halfpower`, with their continuation lines.
fn listed(lines: &[&str], begin: usize, end: usize) -> Vec<Command> {
    let mut commands = Vec::new();
    for at in begin..end {
        let line = lines[at].strip_prefix("$ ").unwrap_or(lines[at]);
        if line.starts_with("halfpower ") || line.starts_with("./halfpower ") {
            let (mut text, mut last) = (without_remark(line), at);
            while last + 1 < end && (text.ends_with('\\') || text.matches('\'').count() % 2 == 1) {
                last += 1;
                let open = text.strip_suffix('\\').unwrap_or(&text).trim_end();
                text = format!("{open} {}", without_remark(lines[last].trim()));
            }
            commands.push(Command { line: at, text, output: (at + 1, at + 1) });
        }
    }
    commands
}

/// Removes the explanation to the right of a command. The explanation begins with three spaces or
/// ` #`.
fn without_remark(line: &str) -> String {
    let end = [" #", "   "].iter().filter_map(|begin| line.find(begin)).min();
    line[..end.unwrap_or(line.len())].trim_end().to_string()
}

/// Returns the commands in the inline code of a table row.
fn in_row(at: usize, row: &str) -> Vec<Command> {
    let code = row.split('`').skip(1).step_by(2);
    let commands = code.filter(|text| text.starts_with("halfpower "));
    commands
        .map(|text| Command { line: at, text: text.replace("\\|", "|"), output: (at + 1, at + 1) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_divided_into_commands_and_their_output() {
        let page = "Text\n```console\n$ a \\\n> b\nout\n\nmore\n$ c\n```\n";
        let blocks = parse(page).unwrap();
        assert_eq!(blocks.len(), 1);
        assert_eq!(blocks[0].mark, Mark::Run);
        let first = Command { line: 2, text: "a \\\nb".into(), output: (4, 7) };
        let second = Command { line: 7, text: "c".into(), output: (8, 8) };
        assert_eq!(blocks[0].commands, [first, second]);
    }

    #[test]
    fn a_comment_marks_the_block_or_table_after_it_and_no_other() {
        let page = "<!-- no-run: needs root -->\n\n```\nhalfpower x\n```\nText\n\
                    ```\nhalfpower y --a   comment\n```\n\
                    <!-- plan -->\n| fio | us |\n|---|---|\n| `fio` | `halfpower z \\| w` |\n";
        let blocks = parse(page).unwrap();
        let marks: Vec<_> = blocks.iter().map(|block| block.mark.clone()).collect();
        assert_eq!(marks, [Mark::NoRun, Mark::Unmarked, Mark::Plan]);
        assert_eq!(blocks[1].commands[0].text, "halfpower y --a");
        assert_eq!(blocks[2].commands[0].text, "halfpower z | w");
    }

    #[test]
    fn a_mark_needs_a_reason_and_a_session_a_command() {
        assert!(parse("<!-- no-run: -->\n```\nhalfpower x\n```\n").is_err());
        assert!(parse("```console\noutput\n```\n").is_err());
        assert!(parse("```console\n$ x\n").is_err());
    }

    #[test]
    fn a_listed_command_may_go_on_in_the_next_line() {
        let blocks = parse("```sh\nhalfpower x \\\n    --y 1   # why\n```\n").unwrap();
        assert_eq!(blocks[0].commands[0].text, "halfpower x --y 1");
        let blocks = parse("```sh\nhalfpower x --c 'a\n    b'\n```\n").unwrap();
        assert_eq!(blocks[0].commands[0].text, "halfpower x --c 'a b'");
    }
}
