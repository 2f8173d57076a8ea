//! Dates for people, in UTC, from nanoseconds since 1970: enough for labels, so no calendar
//! library and no time zones.

/// A time in UTC such as "2026-11-21 20:45" (days to civil date by Howard Hinnant's algorithm).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_have_their_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00");
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00");
        assert_eq!(utc(1_795_293_908_000_000_000), "2026-11-21 20:45");
        assert_eq!(utc(-1), "1969-12-31 23:59");
    }
}
