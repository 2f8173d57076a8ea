//! Rules for all text files of the checkout, in any language.
//!
//! The rules search for words in the whole text, including comments. In this file, each word is
//! written in two halves, so that the file itself does not match.

use super::finding::Finding;

/// Words that mark unfinished work.
const LEFTOVERS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];
/// Prefixes of absolute paths that exist only on the machine of one developer.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Reports words that mark unfinished work. Parts of longer words do not match.
pub fn leftovers(path: &str, text: &str) -> Vec<Finding> {
    let is_inner = |letter: char| letter.is_alphanumeric() || letter == '_';
    let message =
        |word: &str| format!("`{word}` marks unfinished work: finish the work or file an issue");
    find(path, text, &LEFTOVERS, message, |before, after| {
        !before.is_some_and(is_inner) && !after.is_some_and(is_inner)
    })
}

/// Reports absolute paths that exist only on the machine of one developer.
pub fn machine_paths(path: &str, text: &str) -> Vec<Finding> {
    let is_inner = |letter: char| letter.is_alphanumeric() || "_-.*})/".contains(letter);
    let message = |word: &str| {
        format!("the path `{word}...` exists on only one machine; use a relative path")
    };
    find(path, text, &MACHINE_PATHS, message, |before, _| !before.is_some_and(is_inner))
}

/// Reports each line that contains one of `words`. `counts` takes the characters before and after a
/// match, and returns whether the match counts.
fn find(
    path: &str,
    text: &str,
    words: &[&str],
    message: impl Fn(&str) -> String,
    counts: impl Fn(Option<char>, Option<char>) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in words {
            let found = line.match_indices(word).any(|(start, _)| {
                let after = line[start + word.len()..].chars().next();
                counts(line[..start].chars().next_back(), after)
            });
            if found {
                findings.push(Finding::new(path, index + 1, message(word)));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(Finding::line).collect()
    }

    #[test]
    fn marks_of_unfinished_work_fail_and_longer_words_pass() {
        let [fix, cross] = LEFTOVERS;
        let text = format!("fine\n// {fix}: later\nmktemp {cross}{cross}\n# {cross}\n");
        assert_eq!(lines(&leftovers("a.sh", &text)), [2, 4]);
    }

    #[test]
    fn absolute_paths_of_one_machine_fail_and_relative_ones_pass() {
        let [work, root] = MACHINE_PATHS;
        let text = format!("cd {work}main\nls .{work}\nsrc{root}x\n\"{root}.cargo\"\n");
        assert_eq!(lines(&machine_paths("a.md", &text)), [1, 4]);
    }
}
