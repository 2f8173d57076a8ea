//! Formats and parses dates in UTC. Times are in nanoseconds since 1970-01-01. The dates are only
//! labels, so no calendar library and no time zones are needed.

/// Formats a time (ns since 1970) as a date in UTC, such as "2026-11-21 20:45". The algorithm is
/// Howard Hinnant's civil_from_days.
pub fn utc(unix_ns: i64) -> String {
    let minutes = unix_ns.div_euclid(60_000_000_000);
    let (days, minute) = (minutes.div_euclid(1440), minutes.rem_euclid(1440));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}", minute / 60, minute % 60)
}

/// Parses a date in UTC, such as "2026-11-21 20:45" or "2026-11-21 20:45:08". Returns the time (ns
/// since 1970), or None if the text is not a date. The algorithm is Howard Hinnant's
/// days_from_civil.
pub fn parse_utc(text: &str) -> Option<i64> {
    let (date, time) = text.trim().split_once([' ', 'T'])?;
    let numbers = |text: &str, separator: char| -> Option<Vec<i64>> {
        let is_plain = |part: &str| part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
        text.split(separator).map(|part| is_plain(part).then(|| part.parse().ok())?).collect()
    };
    let (date, time) = (numbers(date, '-')?, numbers(time, ':')?);
    let (&[year, month, day], &[hour, minute, ref second @ ..]) = (&*date, &*time) else {
        return None;
    };
    let second = match second {
        [] => 0,
        [second] => *second,
        _ => return None,
    };
    let is_valid = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_valid || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    seconds.checked_mul(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_as_it_was_printed() {
        for unix_ns in [0, 951_782_400_000_000_000, 1_795_293_900_000_000_000] {
            assert_eq!(parse_utc(&utc(unix_ns)), Some(unix_ns));
        }
        assert_eq!(parse_utc("2026-11-21 20:45:08"), Some(1_795_293_908_000_000_000));
        for text in
            ["", "2026-11-21", "2026-13-01 00:00", "a-b-c d:e", "1-1-1 1:1:1:1", "+1-1-1 1:1"]
        {
            assert_eq!(parse_utc(text), None, "{text}");
        }
    }

    #[test]
    fn known_moments_have_their_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00");
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00");
        assert_eq!(utc(1_795_293_908_000_000_000), "2026-11-21 20:45");
        assert_eq!(utc(-1), "1969-12-31 23:59");
    }
}
