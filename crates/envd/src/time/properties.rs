//! What holds of whatever clients write as times.

use proptest::prelude::*;

use super::*;

/// From the year 1 to the year 9999: what the formats have digits for.
const ALL: std::ops::Range<i64> = -62_135_596_800..253_402_300_800;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn times_come_back(seconds in ALL, nanos in 0..1_000_000_000_u32) {
        prop_assert_eq!(parse_rfc3339(&rfc3339(seconds, nanos)), Some((seconds, nanos)));
        prop_assert_eq!(parse_http_date(&http_date(seconds)), Some(seconds));
    }

    #[test]
    fn an_offset_changes_how_a_time_is_written_and_nothing_else(
        seconds in ALL.start + 86_400..ALL.end - 86_400,
        offset in -1439..1440_i64,
    ) {
        let local = rfc3339(seconds + offset * 60, 0);
        let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs());
        let shown = format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        prop_assert_eq!(parse_rfc3339(&local.replace('Z', &shown)), Some((seconds, 0)));
    }

    #[test]
    fn what_is_taken_for_a_time_is_one(
        text in prop_oneof![
            "[0-9+-]{4}-[0-9+-]{2}-[0-9+ ]{2}T[0-9+]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{0,12})?Z?",
            "2[0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9][+-][0-9]{2}.?[0-9]{2}Z?",
            "[A-Z][a-z]{2}, [0-9+-]{1,20} (Jan|Feb|Dec) [0-9+-]{1,20} [0-9+-]{1,20}:[0-9]{1,20}:[0-9]{1,3} GMT",
            ".{0,40}",
        ],
    ) {
        if let Some((seconds, nanos)) = parse_rfc3339(&text) {
            // The year 0 can be written too, and an offset is less than a day.
            let all = ALL.start - 367 * 86_400..ALL.end + 86_400;
            prop_assert!(all.contains(&seconds), "{seconds}");
            prop_assert!(nanos < 1_000_000_000);
            let (date, _) = text.split_once('T').unwrap();
            let midnight = parse_rfc3339(&format!("{date}T00:00:00Z")).unwrap();
            prop_assert_eq!(rfc3339(midnight.0, 0), format!("{date}T00:00:00Z"));
        }
        if let Some(seconds) = parse_http_date(&text) {
            prop_assert_eq!(&http_date(seconds)[4..], &text[4..]);
        }
    }
}
