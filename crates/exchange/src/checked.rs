//! Provides checks for the importers of other tools' results. For example, these functions check
//! that a number is whole, that the database can store the number, and that a file is complete. The
//! callers add the path of the file to error messages.

use lab::failure::{Failure, Outcome};
use lab::point::Trial;

/// Largest number that the database can store.
pub const NUMBER_MAX: u64 = i64::MAX as u64;

/// Checks that the last line is complete.
///
/// # Errors
/// The text does not end with a newline. An empty text is complete.
pub fn is_complete(text: &str) -> Outcome<()> {
    if text.is_empty() || text.ends_with('\n') {
        return Ok(());
    }
    let number = text.lines().count();
    Err(Failure::failed(format!(
        "line {number}: the last line has no line end, so the file may be truncated; create the \
         file again, or add a newline if the file is complete"
    )))
}

/// Converts a number to an integer. None if the number is not a whole number from 0 to `most`.
pub fn whole(number: f64, most: u64) -> Option<u64> {
    let is_whole = number >= 0.0 && number.fract() == 0.0 && number < NUMBER_MAX as f64;
    Some(number as u64).filter(|number| is_whole && *number <= most)
}

/// Formats a number with few digits, for messages.
pub fn short(number: f64) -> String {
    if number < 1e15 { number.to_string() } else { format!("{number:e}") }
}

/// Checks whether the bytes, requests and times of a trial can be stored in the database.
pub fn is_storable(trial: &Trial) -> bool {
    let [read, write] = &trial.directions;
    let sums = [
        read.bytes.checked_add(write.bytes),
        read.requests.checked_add(write.requests),
        Some(trial.elapsed_ns),
        Some(trial.cpu.process_ns),
    ];
    sums.into_iter().all(|sum| sum.is_some_and(|sum| sum <= NUMBER_MAX))
}

/// Checks whether the text is UTF-16 without a byte order mark: exactly one of its first two bytes
/// is 0.
pub fn is_utf16(text: &str) -> bool {
    matches!(text.as_bytes(), [0, other, ..] | [other, 0, ..] if *other != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_numbers_within_the_limit_are_taken() {
        assert_eq!((whole(3.0, 3), whole(0.0, 3)), (Some(3), Some(0)));
        for number in [-1.0, 0.5, 4.0, 1e300, f64::NAN, f64::INFINITY] {
            assert_eq!(whole(number, 3), None, "{number}");
        }
        assert_eq!(whole(9_223_372_036_854_775_808.0, u64::MAX), None);
    }

    #[test]
    fn a_large_number_is_written_in_few_digits() {
        assert_eq!((short(1e300), short(0.5)), ("1e300".to_owned(), "0.5".to_owned()));
    }

    #[test]
    fn a_text_without_a_last_line_end_is_not_complete() {
        assert!(is_complete("a\nb\n").is_ok() && is_complete("").is_ok());
        assert!(is_complete("a\nb").unwrap_err().message.starts_with("line 2: "));
    }

    #[test]
    fn sums_that_the_database_cannot_store_are_found() {
        let mut trial = Trial::default();
        assert!(is_storable(&trial));
        trial.directions[0].bytes = NUMBER_MAX;
        trial.directions[1].bytes = 1;
        assert!(!is_storable(&trial));
    }

    #[test]
    fn text_in_utf_16_is_recognised() {
        assert!(is_utf16("<\0R\0") && is_utf16("\0<\0R"));
        assert!(!is_utf16("<R") && !is_utf16(""));
    }
}
