//! Parses the lines of a log. A line has a time, a value, a direction and a request size. Other
//! columns are ignored. Each line is packed into 16 bytes, because a log may have millions of
//! lines.

use lab::failure::{Failure, Outcome};

/// Maximum time of a line (ms): three years. Times since 1970 (`log_unix_epoch`) are larger and are
/// refused.
pub const TIME_MAX_MS: u64 = 100_000_000_000;
/// Maximum value of a line. A rate (KiB/s) is limited to 1 EB/s, a latency (ns) to 11 days.
const VALUE_MAX: u64 = 1_000_000_000_000_000;
/// Sizes of the fields of a packed line (bits). The remaining bits contain the value.
const TIME_BITS: u32 = 37;
const DIRECTION_BITS: u32 = 2;
const SIZE_BITS: u32 = 32;

/// A line of a log: time (ms), value, direction (0 read, 1 write, 2 trim) and request size (bytes,
/// 0 in a log of means).
#[derive(Clone, Copy, Debug)]
pub struct Line(u128);

impl Line {
    fn new(ms: u64, value: u64, direction: u64, bytes: u64) -> Line {
        let upper = (u128::from(value) << SIZE_BITS) | u128::from(bytes);
        let upper = (upper << DIRECTION_BITS) | u128::from(direction);
        Line((upper << TIME_BITS) | u128::from(ms))
    }

    fn bits(self, from: u32, bits: u32) -> u64 {
        (self.0 >> from) as u64 & ((1 << bits) - 1)
    }

    pub fn ms(self) -> u64 {
        self.bits(0, TIME_BITS)
    }

    pub fn direction(self) -> usize {
        self.bits(TIME_BITS, DIRECTION_BITS) as usize
    }

    pub fn bytes(self) -> u32 {
        self.bits(TIME_BITS + DIRECTION_BITS, SIZE_BITS) as u32
    }

    pub fn value(self) -> u64 {
        (self.0 >> (TIME_BITS + DIRECTION_BITS + SIZE_BITS)) as u64
    }

    /// Parses line `number` of a log.
    ///
    /// # Errors
    /// The line is damaged. The message contains the line number.
    pub fn read(number: usize, line: &str) -> Outcome<Line> {
        let failed = |what: &str| {
            Failure::failed(format!(
                "line {number}: {what}; create the log again with fio 3, without log_unix_epoch \
                 and log_window_value"
            ))
        };
        let mut fields = line.split(',').map(str::trim);
        let all = [fields.next(), fields.next(), fields.next(), fields.next()];
        let ([Some(ms), Some(value), Some(direction), Some(bytes)], 0..=3) = (all, fields.count())
        else {
            let columns = line.split(',').count();
            return Err(failed(&format!("{columns} columns instead of 4 to 7")));
        };
        let whole = |what: &str, text: &str, most: u64| {
            let number = text.parse::<u64>().ok().filter(|number| *number <= most);
            number.ok_or_else(|| {
                let text: String = text.escape_debug().take(40).collect();
                failed(&format!("{what} '{text}' is not a number from 0 to {most}"))
            })
        };
        Ok(Line::new(
            whole("the time", ms, TIME_MAX_MS)?,
            whole("the value", value, VALUE_MAX)?,
            whole("the direction", direction, 2)?,
            whole("the size", bytes, u64::from(u32::MAX))?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_its_numbers() {
        for (ms, value, direction, bytes) in
            [(TIME_MAX_MS, VALUE_MAX, 2, u64::from(u32::MAX)), (1, 2, 1, 3), (0, 0, 0, 0)]
        {
            let text = format!("{ms}, {value}, {direction}, {bytes}, 0, 0x0000, 7");
            let line = Line::read(1, &text).unwrap();
            assert_eq!((line.ms(), line.value()), (ms, value));
            assert_eq!((line.direction() as u64, u64::from(line.bytes())), (direction, bytes));
        }
        assert_eq!(size_of::<Line>(), 16);
    }
}
