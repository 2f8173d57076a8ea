//! Numbers as values of parameters. The errors name the fault and, where a parameter has one, a
//! valid value.

use analysis::units;

/// A number.
///
/// # Errors
/// Text that is no number, or out of range.
pub fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number, or is out of range"))
}

/// A whole number.
///
/// # Errors
/// Any other text.
pub fn whole(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("'{text}' is not a whole number"))
}

/// A list of numbers from 1 to 2^32 - 1.
///
/// # Errors
/// Text that is no such list, with `remedy`.
pub fn counts(text: &str, remedy: &str) -> Result<Vec<u32>, String> {
    units::parse_list(text, whole)?.into_iter().map(|value| narrow(value, remedy)).collect()
}

/// A number from 1 to 2^32 - 1.
///
/// # Errors
/// Any other number, with `remedy`.
pub fn narrow(value: u64, remedy: &str) -> Result<u32, String> {
    match u32::try_from(value) {
        Ok(0) => Err(format!("{value} measures nothing; use {remedy}")),
        Ok(value) => Ok(value),
        Err(_) => Err(format!("{value} is too large; use {remedy}")),
    }
}
