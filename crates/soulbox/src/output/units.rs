//! Numbers as people read them.

use jiff::Timestamp;

/// `512 B`, `1.5 KiB`, `3.0 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut scaled = count;
    let mut unit = 0;
    // Tenths, so that no float is needed; the last division keeps one digit.
    while scaled >= 1024 * 1024 && unit + 1 < UNITS.len() {
        scaled /= 1024;
        unit += 1;
    }
    let tenths = scaled * 10 / 1024;
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// `5 s`, `3 min`, `2 h`, `4 d`.
pub(crate) fn duration(seconds: i64) -> String {
    match seconds.max(0) {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

/// As [`duration`], to the next smaller unit: `23 h 59 min`.
pub(crate) fn precisely(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let rest = match seconds {
        0..120 => 0,
        120..7200 => seconds % 60,
        7200..172_800 => seconds % 3600 / 60,
        _ => seconds % 86_400 / 3600,
    };
    let unit = match seconds {
        0..7200 => "s",
        7200..172_800 => "min",
        _ => "h",
    };
    match rest {
        0 => duration(seconds),
        rest => format!("{} {rest} {unit}", duration(seconds)),
    }
}

/// `3 min ago`; what cannot be read is shown as it came.
pub(crate) fn ago(timestamp: &str, now: Timestamp) -> String {
    match timestamp.parse::<Timestamp>() {
        Ok(then) => format!("{} ago", duration(now.as_second() - then.as_second())),
        Err(_) => timestamp.to_owned(),
    }
}

/// `in 3 min`.
pub(crate) fn ahead(timestamp: &str, now: Timestamp) -> String {
    match timestamp.parse::<Timestamp>() {
        Ok(then) if then <= now => "now".to_owned(),
        Ok(then) => format!("in {}", duration(then.as_second() - now.as_second())),
        Err(_) => timestamp.to_owned(),
    }
}

/// Milliseconds since 1970, or `None` for what is no timestamp.
pub(crate) fn unix_millis(timestamp: &str) -> Option<i64> {
    timestamp
        .parse::<Timestamp>()
        .ok()
        .map(Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_digit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(512 << 20), "512.0 MiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
        assert_eq!(bytes(u64::MAX), "15.9 EiB");
    }

    #[test]
    fn times_may_be_told_more_precisely() {
        let cases = [
            (0, "0 s"),
            (119, "119 s"),
            (300, "5 min"),
            (299, "4 min 59 s"),
            (7200, "2 h"),
            (86_399, "23 h 59 min"),
            (99 * 3600, "4 d 3 h"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(precisely(seconds), expected);
        }
    }

    #[test]
    fn times_are_told_from_now() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        assert_eq!(ago("2026-01-01T00:05:00.123Z", now), "5 min ago");
        assert_eq!(ahead("2026-01-01T00:10:30+00:00", now), "in 30 s");
        assert_eq!(ahead("2026-01-01T00:00:00Z", now), "now");
        assert_eq!(ago("soon", now), "soon");
    }
}
