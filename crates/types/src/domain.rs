//! Names of hosts, as allow lists have them.

use std::{fmt, str::FromStr};

/// Of a name in DNS.
const LONGEST: usize = 253;
const LONGEST_LABEL: usize = 63;

/// One name, or all names below one, or all.
///
/// ```text
/// example.com   *.example.com   *
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DomainPattern {
    Any,
    /// This name and none below it. In lower case, without a dot at the end.
    Exact(String),
    /// Names below it, at any depth; not itself.
    Below(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no domain name: write it as example.com, as *.example.com for the names below it, or as \
     * for all names (other alphabets in their ASCII form, xn--…)"
)]
pub struct NotADomain(String);

impl DomainPattern {
    /// `name` is one that [`host_name`] gave.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => name == exact,
            Self::Below(suffix) => name
                .strip_suffix(suffix.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        }
    }
}

impl FromStr for DomainPattern {
    type Err = NotADomain;

    fn from_str(text: &str) -> Result<Self, NotADomain> {
        let wrong = || NotADomain(text.to_owned());
        if text == "*" {
            return Ok(Self::Any);
        }
        match text.strip_prefix("*.") {
            Some(suffix) => host_name(suffix).map(Self::Below),
            None => host_name(text).map(Self::Exact),
        }
        .ok_or_else(wrong)
    }
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(name) => f.write_str(name),
            Self::Below(suffix) => write!(f, "*.{suffix}"),
        }
    }
}

/// The name of a host in the form in which names are compared: lower case, without the dot of the
/// root. `None` for everything else, addresses too.
pub fn host_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        (1..=LONGEST_LABEL).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    // Whoever resolves a name whose last label is a number takes it for an address.
    let last = name.rsplit('.').next()?;
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .or(last.strip_prefix("0X"))
            .is_some();
    let fits = name.len() <= LONGEST && name.split('.').all(label) && !is_number;
    fits.then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> DomainPattern {
        text.parse().unwrap()
    }

    #[test]
    fn an_exact_name_matches_itself_in_any_case_and_nothing_below_it() {
        for text in ["example.com", "Example.COM", "example.com."] {
            let pattern = pattern(text);
            assert_eq!(pattern.to_string(), "example.com");
            assert!(pattern.matches(&host_name("EXAMPLE.com.").unwrap()));
            for other in ["www.example.com", "example.org", "badexample.com", "com"] {
                assert!(!pattern.matches(other), "{other}");
            }
        }
    }

    #[test]
    fn a_wildcard_matches_at_any_depth_but_not_the_name_itself() {
        let pattern = pattern("*.Example.com");
        assert!(pattern.matches("www.example.com") && pattern.matches("a.b.example.com"));
        for other in [
            "example.com",
            "badexample.com",
            ".example.com",
            "example.com.evil.org",
        ] {
            assert!(!pattern.matches(other), "{other}");
        }
        assert!("*".parse::<DomainPattern>().unwrap().matches("anything"));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = format!("{}.com", "a.".repeat(130));
        let label = format!("{}.com", "a".repeat(64));
        for text in [
            "",
            ".",
            "*.",
            "**",
            "a.*.com",
            "*example.com",
            "*.*.com",
            "a..com",
            ".a.com",
            "a b.com",
            "bücher.example",
            "example.com:443",
            "http://example.com",
            "1.1.1.1",
            "1.1.1",
            "0x7f.1",
            "a.0x1",
            "[::1]",
            "a/b",
            "a\0b",
            "a.com..",
            &long,
            &label,
        ] {
            assert!(text.parse::<DomainPattern>().is_err(), "{text:?}");
        }
        for text in [
            "xn--bcher-kva.example",
            "_dmarc.example.com",
            "localhost",
            "1.example.com",
        ] {
            assert!(text.parse::<DomainPattern>().is_ok(), "{text:?}");
        }
    }
}
