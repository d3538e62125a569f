//! Prints when a sandbox ends, after its end was moved: the server may have set another one.

use jiff::Timestamp;

use crate::{
    context::Server,
    output::units,
    report::{note, warning},
};

/// Our clock and the server's may differ by this much, or an answer take as long, before we say
/// that a requested time was cut short.
const TOLERANCE_SECONDS: i64 = 60;

/// `asked`: how many seconds from `since` on were asked for, where the server may give fewer. The
/// end has been moved, so that not knowing it is no failure.
pub(super) async fn print_end(server: &Server, id: &str, asked: Option<u32>, since: Timestamp) {
    match server.client.sandbox(id).await {
        Ok(sandbox) if sandbox.listed.state == "paused" => note(&format!("sandbox {id} is paused")),
        Ok(sandbox) => note(&sentence(id, &sandbox.listed.end_at, asked, since)),
        Err(error) if error.is_not_found() => note(&format!("sandbox {id} has ended")),
        Err(error) => warning(&format!("it is not known when sandbox {id} ends: {error}")),
    }
}

fn sentence(id: &str, end_at: &str, asked: Option<u32>, since: Timestamp) -> String {
    let Ok(end) = end_at.parse::<Timestamp>() else {
        return format!("sandbox {id} ends at {end_at}");
    };
    // To the nearest second: an end two hours from now is 7199.99 s away when it is read.
    let left = (end.as_millisecond() - since.as_millisecond() + 500).div_euclid(1000);
    let at = end.strftime("%Y-%m-%d %H:%M:%S UTC");
    if left <= 0 {
        return format!("sandbox {id} ends now ({at})");
    }
    let ends = format!("sandbox {id} ends in {} ({at})", units::precisely(left));
    match asked.map(i64::from) {
        Some(asked) if left + TOLERANCE_SECONDS < asked => {
            let wanted = units::precisely(asked);
            format!("{ends}, not in {wanted}: that is the server's longest life")
        }
        _ => ends,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(end_at: &str, asked: Option<u32>) -> String {
        let since = "2026-01-01T00:00:00.010Z".parse().unwrap();
        sentence("i1", end_at, asked, since)
    }

    #[test]
    fn the_end_is_told_from_now_and_by_the_clock() {
        assert_eq!(
            printed("2026-01-01T02:00:00Z", Some(7200)),
            "sandbox i1 ends in 2 h (2026-01-01 02:00:00 UTC)"
        );
        assert_eq!(
            printed("2026-01-01T00:05:00Z", None),
            "sandbox i1 ends in 5 min (2026-01-01 00:05:00 UTC)"
        );
        assert_eq!(
            printed("2025-12-31T23:59:00Z", None),
            "sandbox i1 ends now (2025-12-31 23:59:00 UTC)"
        );
        assert_eq!(printed("soon", None), "sandbox i1 ends at soon");
    }

    #[test]
    fn a_wish_that_the_server_cut_short_is_told_so() {
        assert_eq!(
            printed("2026-01-01T23:59:00Z", Some(99 * 3600)),
            "sandbox i1 ends in 23 h 59 min (2026-01-01 23:59:00 UTC), not in 4 d 3 h: that is the \
             server's longest life"
        );
        // Not by clocks that differ a little.
        assert!(!printed("2026-01-01T00:00:50Z", Some(60)).contains("longest"));
    }
}
