//! Times as E2B writes them: `2026-01-31T12:00:00.000001+00:00`.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    format(since.map_or(0, |since| since.as_micros().try_into().unwrap_or(u64::MAX)))
}

fn format(micros: u64) -> String {
    const DAY: u64 = 86_400;
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+00:00")
}

/// The proleptic Gregorian date of a day since 1970, by eras of 400 years that begin in March.
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_are_written_with_microseconds_and_offset() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000+00:00"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001+00:00"),
            (1_735_689_599_999_999, "2024-12-31T23:59:59.999999+00:00"),
        ] {
            assert_eq!(format(micros), text);
        }
    }
}
