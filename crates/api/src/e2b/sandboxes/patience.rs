//! How long the client of a create waits for its answer, as far as its request tells.

use std::time::Duration;

use http::{HeaderMap, header::USER_AGENT};
use soulbox_control::Wait;

/// E2B's clients give a request 60 s, whether it is answered or not; a part of that is the way here
/// and back.
const USUAL: Duration = Duration::from_secs(57);
/// The whole of it is the sum of the read and the write timeout, 60 s each, in the HTTP library
/// (pyqwest 0.12) of some versions of PyPI's e2b. Those that were tried are meant, and no newer ones.
const DOUBLE: Duration = Duration::from_secs(115);
const DOUBLE_FROM: (u32, u32) = (2, 56);
const DOUBLE_TO: (u32, u32) = (2, 63);

pub(super) fn of(headers: &HeaderMap) -> Wait {
    if let Some(wait) = preferred(headers) {
        return Wait::Asked(wait);
    }
    let agent = headers
        .get(USER_AGENT)
        .and_then(|value| value.to_str().ok());
    let version = agent.and_then(python_sdk);
    let doubles = version.is_some_and(|version| (DOUBLE_FROM..=DOUBLE_TO).contains(&version));
    Wait::Usual(if doubles { DOUBLE } else { USUAL })
}

/// `Prefer: wait=SECONDS` (RFC 7240, 4.3), beside other preferences. What cannot be read is none: a
/// preference is never a reason to refuse.
fn preferred(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all("prefer").into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut preferences = texts.flat_map(|text| text.split(','));
    preferences.find_map(|preference| {
        let preference = preference.split(';').next().unwrap_or_default();
        let (name, value) = preference.split_once('=')?;
        if !name.trim().eq_ignore_ascii_case("wait") {
            return None;
        }
        let seconds: u32 = value.trim().trim_matches('"').parse().ok()?;
        Some(Duration::from_secs(seconds.into()))
    })
}

/// Major and minor version.
fn python_sdk(agent: &str) -> Option<(u32, u32)> {
    let sdk = agent
        .split_whitespace()
        .find_map(|word| word.strip_prefix("e2b-python-sdk/"))?;
    let mut numbers = sdk.split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_headers(pairs: &[(&'static str, &'static str)]) -> Wait {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        of(&headers)
    }

    #[test]
    fn who_says_how_long_it_waits_is_believed() {
        let asked = |text| match of_headers(&[("prefer", text), ("user-agent", "curl/8")]) {
            Wait::Asked(wait) => Some(wait.as_secs()),
            Wait::Usual(_) => None,
        };
        assert_eq!(asked("wait=300"), Some(300));
        assert_eq!(asked("respond-async, Wait = \"20\"; x=1"), Some(20));
        assert_eq!(asked("wait=0"), Some(0));
        for unreadable in ["wait", "wait=", "wait=-1", "wait=soon", "waiting=3", ""] {
            assert_eq!(asked(unreadable), None, "{unreadable}");
        }
        let second = of_headers(&[("prefer", "handling=strict"), ("prefer", "wait=7")]);
        assert_eq!(second, Wait::Asked(Duration::from_secs(7)));
    }

    #[test]
    fn a_client_that_says_nothing_is_known_by_its_name_and_version() {
        let of_agent = |agent| of_headers(&[("user-agent", agent)]);
        for agent in ["e2b-python-sdk/2.63.0", "e2b-python-sdk/2.56.0 x/1"] {
            assert_eq!(of_agent(agent), Wait::Usual(DOUBLE), "{agent}");
        }
        for agent in [
            "e2b-python-sdk/2.55.1",
            "e2b-python-sdk/2.64.0",
            "e2b-python-sdk/3.0.0",
            "e2b-python-sdk/",
            "e2b-js-sdk/2.60.0",
            "",
        ] {
            assert_eq!(of_agent(agent), Wait::Usual(USUAL), "{agent}");
        }
        assert_eq!(of_headers(&[]), Wait::Usual(USUAL));
    }
}
