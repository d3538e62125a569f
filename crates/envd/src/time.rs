//! Calendar arithmetic for the three date formats on the wire. UTC only.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: i64 = 86_400;
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
/// 1 January 1970 was a Thursday.
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

pub(crate) fn unix_seconds() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// RFC 3339 with 0, 3, 6 or 9 digits of fraction, as proto3 JSON writes timestamps.
pub(crate) fn rfc3339(seconds: i64, nanos: u32) -> String {
    let (year, month, day) = civil(seconds.div_euclid(DAY));
    let (hour, minute, second) = clock(seconds);
    let fraction = match nanos {
        0 => String::new(),
        n if n % 1_000_000 == 0 => format!(".{:03}", n / 1_000_000),
        n if n % 1_000 == 0 => format!(".{:06}", n / 1_000),
        n => format!(".{n:09}"),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Seconds and nanoseconds since the epoch.
pub(crate) fn parse_rfc3339(text: &str) -> Option<(i64, u32)> {
    let field = |from: usize, to: usize| digits(text.get(from..to)?);
    let shape: [(usize, &[&str]); 5] = [
        (4, &["-"]),
        (7, &["-"]),
        (10, &["T", "t", " "]),
        (13, &[":"]),
        (16, &[":"]),
    ];
    for (at, signs) in shape {
        text.get(at..at + 1).filter(|sign| signs.contains(sign))?;
    }
    let date = days_of(field(0, 4)?, field(5, 7)?, field(8, 10)?)?;
    let seconds = date * DAY + seconds_of(field(11, 13)?, field(14, 16)?, field(17, 19)?)?;

    let mut rest = text.get(19..)?;
    let mut nanos = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let shown = fraction.get(..length.min(9))?;
        nanos = format!("{shown:0<9}").parse().ok()?;
        rest = fraction.get(length..)?;
    }
    let offset = match rest {
        "Z" | "z" => 0,
        _ => {
            let sign = match rest.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let (hours, minutes) = rest.get(1..)?.split_once(':')?;
            if hours.len() != 2 || minutes.len() != 2 {
                return None;
            }
            sign * seconds_of(digits(hours)?, digits(minutes)?, 0)?
        }
    };
    Some((seconds - offset, nanos))
}

/// The date of HTTP headers: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn http_date(seconds: i64) -> String {
    let days = seconds.div_euclid(DAY);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = clock(seconds);
    let weekday = WEEKDAYS[usize::try_from(days.rem_euclid(7)).unwrap_or(0)];
    let month = MONTHS[usize::try_from(month - 1).unwrap_or(0)];
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

pub(crate) fn parse_http_date(text: &str) -> Option<i64> {
    let mut words = text.split_once(", ")?.1.split(' ');
    let day = words.next().filter(|day| day.len() == 2)?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|month| *month == name)?;
    let year = words.next().filter(|year| year.len() == 4)?;
    let clock = words.next().filter(|clock| clock.len() == 8)?;
    let mut clock = clock.splitn(3, ':').map(digits);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if words.next() != Some("GMT") || words.next().is_some() {
        return None;
    }
    let days = days_of(digits(year)?, i64::try_from(month).ok()? + 1, digits(day)?)?;
    Some(days * DAY + seconds_of(hour, minute, second)?)
}

/// Short numbers without a sign: what is made of them cannot overflow.
fn digits(text: &str) -> Option<i64> {
    let short = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    short.then(|| text.parse().ok()).flatten()
}

/// `None`: there is no such day.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let days = days_from_civil(year, month, day);
    (civil(days) == (year, month, day)).then_some(days)
}

/// `None`: there is no such time of a day.
fn seconds_of(hour: i64, minute: i64, second: i64) -> Option<i64> {
    (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
}

fn clock(seconds: i64) -> (i64, i64, i64) {
    let of_day = seconds.rem_euclid(DAY);
    (of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Year, month and day of a day since the epoch (Gregorian, valid for any year).
fn civil(days: i64) -> (i64, i64, i64) {
    // Count from 1 March of year 0: then the leap day is the last of the year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_round_trip() {
        for seconds in [
            0,
            951_782_400,
            1_709_164_799,
            784_111_777,
            4_102_444_800,
            -1,
        ] {
            assert_eq!(parse_rfc3339(&rfc3339(seconds, 0)), Some((seconds, 0)));
            assert_eq!(parse_http_date(&http_date(seconds)), Some(seconds));
        }
    }

    #[test]
    fn known_dates_are_right() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(rfc3339(951_782_400, 1_000), "2000-02-29T00:00:00.000001Z");
        assert_eq!(
            parse_rfc3339("2000-02-29T02:00:00.5+02:00"),
            Some((951_782_400, 500_000_000))
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "yesterday",
            "2000-02-29",
            "2000-02-29T00:00:00",
            "2000-02-29T00:00:00+",
            "2000-02-29T00:00:00+02:00Z",
            "2000-02-29T00:00:00+02-00",
            "2000-02-29T24:00:00Z",
            "2001-02-29T00:00:00Z",
            "2000-00-01T00:00:00Z",
            "2000-13-01T00:00:00Z",
            "+200-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text:?}");
        }
        for text in [
            "never",
            "Sun, 06 Nov 9223372036854775807 08:49:37 GMT",
            "Sun, 06 Nov 1994 9223372036854775807:49:37 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
        ] {
            assert_eq!(parse_http_date(text), None, "{text:?}");
        }
    }
}
