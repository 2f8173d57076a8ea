//! Parses the values of numeric parameters. If the caller passes a remedy, error messages end with
//! the remedy.

use analysis::units;

/// Parses a number.
///
/// # Errors
/// If the text is not a number or is out of range.
pub fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number, or is out of range"))
}

/// Parses a whole number.
///
/// # Errors
/// If the text is not a whole number.
pub fn whole(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("'{text}' is not a whole number"))
}

/// Parses a list of numbers from 1 to 2^32 - 1.
///
/// # Errors
/// If the text is not a list of whole numbers, or if a number is out of range. In the second case,
/// the error ends with `remedy`.
pub fn counts(text: &str, remedy: &str) -> Result<Vec<u32>, String> {
    units::parse_list(text, whole)?.into_iter().map(|value| narrow(value, remedy)).collect()
}

/// Converts a number from 1 to 2^32 - 1 to `u32`.
///
/// # Errors
/// If the number is out of range. The error ends with `remedy`.
pub fn narrow(value: u64, remedy: &str) -> Result<u32, String> {
    match u32::try_from(value) {
        Ok(0) => Err(format!("{value} measures nothing; use {remedy}")),
        Ok(value) => Ok(value),
        Err(_) => Err(format!("{value} is too large; use {remedy}")),
    }
}
