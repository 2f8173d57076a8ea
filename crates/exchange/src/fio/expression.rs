//! Parses fio's numbers: sizes, times and counts with fio's units, and `(expressions)` of such
//! numbers.
//!
//! By default, `4k` and `4kb` are 4096 bytes, and `4KiB` is 4000 bytes. With `kb_base=1000`, `4k`
//! and `4kb` are 4000 bytes, and `4KiB` is 4096 bytes (fio's documentation, Parameter types). fio
//! reads `1.5k` as one byte and `4 k` as four bytes, but here both are errors.

/// Maximum nesting of parentheses.
const DEPTH_MAX: u32 = 32;
/// Maximum result, in bytes or us. It is larger than any file and longer than any run.
const VALUE_MAX: i128 = 9_000_000_000_000_000_000;

/// The kind of a number, which determines its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes. The unit `k` multiplies by `kb_base`, which is 1024 or 1000.
    Bytes {
        /// fio's `kb_base`.
        kb_base: u64,
    },
    /// Time. A number without a unit is multiplied by `bare_us`.
    Time {
        /// Factor that converts a number without a unit to microseconds. For example, 1,000,000 if
        /// such a number is in seconds.
        bare_us: u64,
    },
}

/// Returns the value of a number or of an expression in parentheses, in bytes or microseconds.
///
/// # Errors
/// The text is malformed, or its value is negative or too large. The message describes the mistake
/// and shows a valid form.
pub fn evaluate(text: &str, quantity: Quantity) -> Result<u64, String> {
    let text = text.trim();
    let mut parser = Parser { rest: text, quantity, has_unit: false, depth: 0 };
    let value = match text.starts_with('(') {
        true => parser.expression(),
        false => parser.number(),
    };
    let value = match (value, parser.rest.trim()) {
        (Ok(value), "") => value,
        (Ok(_), rest) => return Err(format!("'{text}': unexpected '{rest}'; {}", parser.form())),
        (Err(why), _) => return Err(format!("'{text}': {why}; {}", parser.form())),
    };
    let value = match quantity {
        Quantity::Time { bare_us } if !parser.has_unit => value.checked_mul(i128::from(bare_us)),
        _ => Some(value),
    };
    let in_range = value.filter(|value| (0..=VALUE_MAX).contains(value));
    in_range
        .map(|value| value as u64)
        .ok_or_else(|| format!("'{text}' is negative or too large; {}", parser.form()))
}

/// A recursive-descent parser of fio's expressions.
struct Parser<'a> {
    rest: &'a str,
    quantity: Quantity,
    has_unit: bool,
    depth: u32,
}

impl Parser<'_> {
    fn form(&self) -> &'static str {
        match self.quantity {
            Quantity::Bytes { .. } => "write a whole number such as 4096, 64k or (2*1m)",
            Quantity::Time { .. } => "write a whole number such as 10, 500ms or (2*30s)",
        }
    }

    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn accept(&mut self, wanted: &[char]) -> Option<char> {
        let found = self.peek().filter(|c| wanted.contains(c))?;
        self.rest = &self.rest[1..];
        Some(found)
    }

    /// Parses a sum.
    fn expression(&mut self) -> Result<i128, String> {
        let mut value = self.product()?;
        while let Some(sign) = self.accept(&['+', '-']) {
            let term = self.product()?;
            let sum = if sign == '+' { value.checked_add(term) } else { value.checked_sub(term) };
            value = checked(sum)?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<i128, String> {
        let mut value = self.power()?;
        while let Some(sign) = self.accept(&['*', '/', '%']) {
            let factor = self.power()?;
            let result = match sign {
                '*' => value.checked_mul(factor),
                _ if factor == 0 => return Err("division by zero".to_owned()),
                '/' => value.checked_div(factor),
                _ => value.checked_rem(factor),
            };
            value = checked(result)?;
        }
        Ok(value)
    }

    /// Parses a power, which is right-associative.
    fn power(&mut self) -> Result<i128, String> {
        let base = self.operand()?;
        if self.accept(&['^']).is_none() {
            return Ok(base);
        }
        self.enter()?;
        let exponent = self.power()?;
        self.depth -= 1;
        let exponent = u32::try_from(exponent)
            .map_err(|_| "an exponent is negative or too large".to_owned())?;
        checked(base.checked_pow(exponent))
    }

    fn enter(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err("it is nested too deeply".to_owned()) } else { Ok(()) }
    }

    fn operand(&mut self) -> Result<i128, String> {
        if self.accept(&['-']).is_some() {
            self.enter()?;
            let value = self.operand()?;
            self.depth -= 1;
            return checked(value.checked_neg());
        }
        if self.accept(&['(']).is_none() {
            return self.number();
        }
        self.enter()?;
        let value = self.expression()?;
        self.depth -= 1;
        self.accept(&[')']).map(|_| value).ok_or_else(|| "a ')' is missing".to_owned())
    }

    /// Parses a decimal number with an optional unit, or a hexadecimal number without a unit.
    fn number(&mut self) -> Result<i128, String> {
        self.peek();
        let hexadecimal = self.rest.strip_prefix("0x").or_else(|| self.rest.strip_prefix("0X"));
        let (digits, radix) = hexadecimal.map_or((self.rest, 10), |digits| (digits, 16));
        let is_digit = |c: char| c.is_digit(radix);
        let end = digits.find(|c| !is_digit(c)).unwrap_or(digits.len());
        let value = i128::from_str_radix(&digits[..end], radix);
        let value = value.map_err(|_| "not a number, or too many digits".to_owned())?;
        self.rest = &digits[end..];
        let is_unit = |c: char| c.is_ascii_alphabetic();
        let end = self.rest.find(|c| !is_unit(c)).unwrap_or(self.rest.len());
        let unit = &self.rest[..end];
        let factor = self.factor(unit).ok_or_else(|| format!("unknown unit '{unit}'"))?;
        if radix == 16 && !unit.is_empty() {
            return Err("a hexadecimal number cannot have a unit".to_owned());
        }
        self.has_unit |= !unit.is_empty();
        self.rest = &self.rest[end..];
        checked(value.checked_mul(factor))
    }

    fn factor(&self, unit: &str) -> Option<i128> {
        let unit = unit.to_ascii_lowercase();
        match self.quantity {
            Quantity::Bytes { kb_base } => {
                let letter = unit.chars().next().filter(|letter| *letter != 'b');
                let Some(letter) = letter else { return matches!(&*unit, "" | "b").then_some(1) };
                let power = "kmgtp".find(letter)? as u32 + 1;
                let base = match &unit[1..] {
                    "" | "b" | "i" => kb_base,
                    "ib" => 2024 - kb_base,
                    _ => return None,
                };
                Some(i128::from(base).pow(power))
            }
            Quantity::Time { .. } => match unit.as_str() {
                "" | "us" | "usec" => Some(1),
                "ms" | "msec" => Some(1_000),
                "s" | "sec" => Some(1_000_000),
                "m" => Some(60_000_000),
                "h" => Some(3_600_000_000),
                "d" => Some(86_400_000_000),
                _ => None,
            },
        }
    }
}

fn checked(value: Option<i128>) -> Result<i128, String> {
    let in_range = value.filter(|value| value.unsigned_abs() <= VALUE_MAX as u128);
    in_range.ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: Quantity = Quantity::Bytes { kb_base: 1024 };
    const DECIMAL: Quantity = Quantity::Bytes { kb_base: 1000 };
    const SECONDS: Quantity = Quantity::Time { bare_us: 1_000_000 };

    #[test]
    fn sizes_have_the_values_that_fio_prints() {
        // Columns 2 and 3 are the values that `fio --bs=TEXT` prints with kb_base 1024 and 1000.
        for (text, binary, decimal) in [
            ("4k", 4096, 4000),
            ("4ki", 4096, 4000),
            ("4kib", 4000, 4096),
            ("4KB", 4096, 4000),
            ("4b", 4, 4),
            ("0x10", 16, 16),
        ] {
            assert_eq!(evaluate(text, BINARY), Ok(binary), "{text}");
            assert_eq!(evaluate(text, DECIMAL), Ok(decimal), "{text}");
        }
        assert_eq!(evaluate("2t", BINARY), Ok(2 << 40));
    }

    #[test]
    fn expressions_follow_the_usual_precedence() {
        for (text, value) in [
            ("(2*4k)", 8192),
            ("(1+2*3)", 7),
            ("((1+2)*3)", 9),
            ("(7/2)", 3),
            ("(7%4)", 3),
            ("(2^3^2)", 512),
            ("(-4+8)", 4),
            ("( 1m - 1k )", (1 << 20) - 1024),
        ] {
            assert_eq!(evaluate(text, BINARY), Ok(value), "{text}");
        }
    }

    #[test]
    fn a_bare_time_has_the_unit_of_its_option_and_others_are_microseconds() {
        assert_eq!(evaluate("5", SECONDS), Ok(5_000_000));
        assert_eq!(evaluate("10ms", SECONDS), Ok(10_000));
        assert_eq!(evaluate("2m", SECONDS), Ok(120_000_000));
        assert_eq!(evaluate("(2*3)", SECONDS), Ok(6_000_000));
        assert_eq!(evaluate("(1ms+1)", SECONDS), Ok(1001));
        assert_eq!(evaluate("50", Quantity::Time { bare_us: 1 }), Ok(50));
    }

    #[test]
    fn what_fio_would_misread_or_cannot_compute_is_refused_with_a_valid_form() {
        let deep = format!("{}1{}", "(".repeat(1000), ")".repeat(1000));
        for text in [
            "1.5k",
            "4 k",
            "4x",
            "",
            "k",
            "-1",
            "(1-2)",
            "(1/0)",
            "(5%0)",
            "(1",
            "(1))",
            "(2^200)",
            "(2^-1)",
            "99999999999999999999",
            "9999999p",
            "0x10k",
            "(4k*)",
            "8*2",
            "é",
            "4é",
            &deep,
        ] {
            let refusal = evaluate(text, BINARY).unwrap_err();
            assert!(refusal.contains("; write a whole number"), "{text}: {refusal}");
        }
        assert!(evaluate("4k", SECONDS).unwrap_err().contains("500ms"));
    }
}
