//! How values look in JSON.

use jiff::Timestamp;
use soulbox_types::UnixMillis;

/// E2B's clients require it, and it means nothing any more.
pub(crate) const CLIENT_ID: &str = "6532622b";

/// RFC 3339, always with milliseconds.
pub(crate) fn timestamp(at: UnixMillis) -> String {
    let millis = i64::try_from(at.0).unwrap_or(i64::MAX);
    let at = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
    format!("{at:.3}")
}

/// A time that a client wrote, perhaps finer than ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instant(Timestamp);

pub(crate) fn parse_timestamp(text: &str) -> Option<Instant> {
    // An offset's plus sign that was not encoded arrives as a space.
    text.replace(' ', "+").parse().ok().map(Instant)
}

impl Instant {
    pub(crate) fn whole_millis(self) -> UnixMillis {
        UnixMillis(u64::try_from(self.0.as_millisecond()).unwrap_or_default())
    }

    /// Whether our time is this one or later.
    pub(crate) fn is_not_after(self, at: UnixMillis) -> bool {
        i64::try_from(at.0)
            .is_ok_and(|millis| self.0.as_microsecond() <= millis.saturating_mul(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_always_have_milliseconds() {
        assert_eq!(timestamp(UnixMillis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            timestamp(UnixMillis(1_763_235_653_120)),
            "2025-11-15T19:40:53.120Z"
        );
        assert!(timestamp(UnixMillis(u64::MAX)).starts_with("9999-12-3"));
    }

    #[test]
    fn a_written_time_comes_back() {
        let at = UnixMillis(1_763_235_653_123);
        let same = parse_timestamp(&timestamp(at)).unwrap();
        assert_eq!(same.whole_millis(), at);
        assert!(same.is_not_after(at) && !same.is_not_after(UnixMillis(at.0 - 1)));
        assert!(parse_timestamp("2025-11-15T19:40:53.123 00:00").is_some());
        assert!(parse_timestamp("yesterday").is_none());
    }
}
