//! Compares the output of a command with the output in a page, except for numbers.
//!
//! Both texts are compared word by word, so line breaks make no difference. Numbers and dates are
//! replaced by `#`, and units of time and data by `s` and `B`: `48.5k`, `9521` and `2026-11-25`
//! become `#`; `7.42 ms` and `93 us` become `# s`. Everything else must be equal.

#[derive(Clone, Debug, PartialEq)]
struct Word {
    text: String,
    /// Index of the line that contains this word.
    line: usize,
}

/// The first difference between a page and the output of a command.
#[derive(Debug, PartialEq)]
pub struct Difference {
    /// The line in the page. None if the output has more lines than the page.
    pub expected: Option<String>,
    /// The line of the output at this position. None if the output has no more lines, or if only
    /// the first words were compared.
    pub printed: Option<String>,
}

/// A line in a page that matches any number of lines of output.
const ANYTHING: &str = "...";

/// Units of time. Each is replaced by `s` before the comparison.
const TIMES: [&str; 5] = ["ns", "us", "ms", "s", "min"];
/// Units of data. Each is replaced by `B` before the comparison.
const BYTES: [&str; 10] = ["B", "KiB", "MiB", "GiB", "TiB", "KB", "kB", "MB", "GB", "TB"];

/// Compares the output in a page (`expected`) with the printed output. A line `...` in the page
/// matches any number of lines.
///
/// # Errors
/// Returns the first difference.
pub fn compare(expected: &[&str], printed: &[&str]) -> Result<(), Difference> {
    aligned(expected, printed).map(drop)
}

/// Returns the new output for the page:
/// - If the page contains no `...`: the printed lines.
/// - If the printed lines match the page: the printed lines, but with each `...` of the page in
///   place of the lines that the `...` matches.
/// - Otherwise: the lines of the page. Each `...` stays. All lines except `...` are replaced: each
///   by the next printed line that resembles it. If there is no such printed line, the line of the
///   page is removed.
pub fn renewed(expected: &[&str], printed: &[&str]) -> Vec<String> {
    if !expected.contains(&ANYTHING) {
        return printed.iter().map(|line| (*line).to_string()).collect();
    }
    if let Ok(ranges) = aligned(expected, printed) {
        let mut lines = Vec::new();
        for (index, (from, to)) in ranges.iter().enumerate() {
            lines.extend((index > 0).then(|| ANYTHING.to_string()));
            lines.extend(printed[*from..*to].iter().map(|line| (*line).to_string()));
        }
        return lines;
    }
    let mut at = 0;
    let mut lines = Vec::new();
    for line in expected {
        if *line == ANYTHING {
            lines.push(ANYTHING.to_string());
        } else if let Some(found) = most_like(line, &printed[at..]) {
            lines.push(printed[at + found].to_string());
            at += found + 1;
        }
    }
    lines
}

/// Compares only the first word of each unindented line. The first words in the page must also
/// occur in the printed output, in the same order.
///
/// # Errors
/// Returns the first line of the page whose first word is missing in the output, or is in a
/// different order there.
pub fn compare_openings(expected: &[&str], printed: &[&str]) -> Result<(), Difference> {
    let opening = |line: &&str| -> Option<String> {
        let is_heading = !line.is_empty() && !line.starts_with(' ') && *line != ANYTHING;
        is_heading.then(|| words_of(line, 0).first().map(|word| word.text.clone()))?
    };
    let mut rest = printed.iter().filter_map(opening);
    for line in expected {
        let Some(word) = opening(line) else { continue };
        if !rest.any(|other| other == word) {
            return Err(Difference { expected: Some((*line).to_string()), printed: None });
        }
    }
    Ok(())
}

/// Divides the page into parts at its `...` lines, and finds each part in the printed output.
/// Returns the range of printed lines that each part matches.
fn aligned(expected: &[&str], printed: &[&str]) -> Result<Vec<(usize, usize)>, Difference> {
    let parts: Vec<Vec<Word>> = parts_of(expected);
    let actual: Vec<Word> = words(printed, 0);
    let mut at = 0;
    let mut ranges = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let must_end = index + 1 == parts.len();
        let starts: Vec<usize> =
            if index == 0 { vec![0] } else { line_starts(&actual, at).collect() };
        let fits = |start: &usize| {
            let same = common(part, &actual[*start..]);
            same == part.len() && (!must_end || start + same == actual.len() || part.is_empty())
        };
        let Some(start) = starts.iter().copied().find(fits) else {
            let best = starts.iter().max_by_key(|start| common(part, &actual[**start..]));
            let start = best.copied().unwrap_or(actual.len());
            return Err(difference(expected, printed, part, &actual[start..]));
        };
        at = start + part.len();
        ranges.push(lines_between(&actual, start, at));
    }
    Ok(ranges)
}

/// Returns the words of the page, divided into parts at the `...` lines.
fn parts_of(expected: &[&str]) -> Vec<Vec<Word>> {
    let mut parts = vec![Vec::new()];
    for (line, text) in expected.iter().enumerate() {
        if *text == ANYTHING {
            parts.push(Vec::new());
        } else if let Some(part) = parts.last_mut() {
            part.extend(words_of(text, line));
        }
    }
    parts
}

fn words(lines: &[&str], first: usize) -> Vec<Word> {
    lines.iter().enumerate().flat_map(|(line, text)| words_of(text, first + line)).collect()
}

/// Returns the indices, from `at` on, of the words that begin a line. The last item is the number
/// of words.
fn line_starts(words: &[Word], at: usize) -> impl Iterator<Item = usize> + '_ {
    let begins = move |index: &usize| *index == 0 || words[*index - 1].line != words[*index].line;
    (at..words.len()).filter(begins).chain([words.len()])
}

/// Returns the length of the common prefix of two word lists.
fn common(one: &[Word], other: &[Word]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a.text == b.text).count()
}

fn lines_between(words: &[Word], start: usize, end: usize) -> (usize, usize) {
    if start == end { (0, 0) } else { (words[start].line, words[end - 1].line + 1) }
}

fn difference(expected: &[&str], printed: &[&str], part: &[Word], actual: &[Word]) -> Difference {
    let same = common(part, actual);
    let line_in = |lines: &[&str], word: Option<&Word>| {
        word.and_then(|word| lines.get(word.line)).map(|line| (*line).to_string())
    };
    Difference {
        expected: line_in(expected, part.get(same)),
        printed: line_in(printed, actual.get(same)),
    }
}

/// Returns the index of the first printed line that resembles `line`: the lines must share at least
/// half of the words of the longer line.
fn most_like(line: &str, printed: &[&str]) -> Option<usize> {
    let own: Vec<String> = words_of(line, 0).into_iter().map(|word| word.text).collect();
    let shared = |other: &str| {
        let others = words_of(other, 0);
        let count = own.iter().filter(|word| others.iter().any(|o| o.text == **word)).count();
        2 * count >= own.len().max(others.len()).max(1)
    };
    printed.iter().position(|other| shared(other))
}

/// Splits a line into words, in which numbers are replaced by `#`, and units by `s` or `B`.
fn words_of(line: &str, at: usize) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for raw in line.split_whitespace() {
        let mut text = without_numbers(raw);
        if words.last().is_some_and(|before| before.text.ends_with('#')) {
            text = without_prefix(&text);
        }
        words.push(Word { text, line: at });
    }
    words
}

/// Replaces a unit of time by `s` and a unit of data by `B`. Punctuation around the unit is kept.
fn without_prefix(word: &str) -> String {
    let begin = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
    let end =
        word[begin..].find(|c: char| !c.is_ascii_alphabetic()).map_or(word.len(), |n| begin + n);
    let unit = match &word[begin..end] {
        unit if TIMES.contains(&unit) => "s",
        unit if BYTES.contains(&unit) => "B",
        other => other,
    };
    format!("{}{unit}{}", &word[..begin], &word[end..])
}

/// Replaces the numbers in a word by `#`, with their signs and suffixes (`48.5k`, `+-9.2%`,
/// `17:59`). A UUID becomes `UUID`. Digits that follow a letter belong to a name and are kept
/// (`p99`, `io_uring4`).
fn without_numbers(word: &str) -> String {
    let chars: Vec<char> = word.chars().collect();
    let mut text = String::new();
    let mut at = 0;
    while at < chars.len() {
        let after_letter = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
        if !after_letter && is_uuid(&chars[at..]) {
            text.push_str("UUID");
            at += 36;
            continue;
        }
        let signs = chars[at..].iter().take_while(|c| matches!(c, '+' | '-' | '~')).count();
        let digit = chars.get(at + signs).is_some_and(char::is_ascii_digit);
        if after_letter || !digit {
            text.push(chars[at]);
            at += 1;
            continue;
        }
        at += signs;
        while at < chars.len() && continues_number(&chars, at) {
            at += 1;
        }
        text.push('#');
    }
    text
}

/// Returns whether the character at `at` belongs to the number that precedes it.
fn continues_number(chars: &[char], at: usize) -> bool {
    let digit_follows = chars.get(at + 1).is_some_and(char::is_ascii_digit);
    match chars[at] {
        '.' | ',' | ':' | '-' => digit_follows,
        '%' => true,
        c => c.is_ascii_alphanumeric(),
    }
}

fn is_uuid(chars: &[char]) -> bool {
    let dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    chars.len() >= 36
        && chars[..36].iter().enumerate().all(|(at, c)| match dash(at) {
            true => *c == '-',
            false => c.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(line: &str) -> String {
        words_of(line, 0).into_iter().map(|word| word.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn numbers_units_dates_and_ids_lose_their_value() {
        assert_eq!(normal("rate 48.5k, p50 7.42 ms (+-9%)"), "rate #, p50 # s (#)");
        assert_eq!(normal("8.93 MiB/s (9.36 MB/s)"), normal("1.2 GiB/s (1300 KB/s)"));
        assert_eq!(normal("2026-11-25 17:59 UTC"), "# # UTC");
        assert_eq!(
            normal("halfpower-bddc6d46-f3c8-4779-83f6-4dd446380800.test"),
            "halfpower-UUID.test"
        );
    }

    #[test]
    fn words_and_names_keep_theirs() {
        assert_ne!(normal("p99 3 us"), normal("p50 3 us"));
        assert_ne!(normal("3 reads"), normal("3 writes"));
        assert_eq!(normal("nt4-ultrawide io_uring"), "nt4-ultrawide io_uring");
    }

    #[test]
    fn a_line_broken_elsewhere_is_the_same_and_another_word_is_not() {
        assert_eq!(compare(&["a 10 b", "c"], &["a", "9 b c"]), Ok(()));
        let found = compare(&["a 10 b", "c valid"], &["a 9 b", "c suspect"]).unwrap_err();
        assert_eq!(found.expected.as_deref(), Some("c valid"));
        assert_eq!(found.printed.as_deref(), Some("c suspect"));
        assert!(compare(&["a"], &["a", "b"]).is_err());
        assert!(compare(&["a", "b"], &["a"]).is_err());
    }

    #[test]
    fn dots_stand_for_any_lines_and_the_rest_must_still_be_there() {
        assert_eq!(compare(&["a", "...", "d"], &["a", "b", "c", "d"]), Ok(()));
        assert_eq!(compare(&["a", "..."], &["a", "b"]), Ok(()));
        assert_eq!(compare(&["...", "d"], &["d", "c", "d"]), Ok(()));
        let found = compare(&["a", "...", "x 1", "y"], &["a", "x 2", "z"]).unwrap_err();
        assert_eq!(found.expected.as_deref(), Some("y"));
        assert_eq!(found.printed.as_deref(), Some("z"));
    }

    #[test]
    fn a_new_text_keeps_what_the_page_leaves_out() {
        let printed = ["a 2", "b", "c 3", "d"];
        assert_eq!(renewed(&["a 1", "...", "d"], &printed), ["a 2", "...", "d"]);
        assert_eq!(renewed(&["a 1", "...", "c 9", "..."], &printed), ["a 2", "...", "c 3", "..."]);
        assert_eq!(renewed(&["old"], &printed), printed);
        let other = ["a 2", "b", "rate of reads 3", "d"];
        let new = renewed(&["a 1", "...", "rate of writes 9", "gone"], &other);
        assert_eq!(new, ["a 2", "...", "rate of reads 3"]);
    }

    #[test]
    fn openings_are_compared_in_their_order() {
        let page = ["/data (ext4): valid", "", "Findings", "  - one", "Advice"];
        assert_eq!(
            compare_openings(&page, &["/data (xfs): suspect", "Findings", "Advice"]),
            Ok(())
        );
        assert!(compare_openings(&page, &["/data (xfs): suspect", "Advice", "Findings"]).is_err());
    }
}
