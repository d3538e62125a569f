//! envd's control routes configure a sandbox from outside and are for the node only. They are refused
//! here before anything else is checked; envd requires the node's token besides.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Routes of E2B's envd that its own edge refuses, whatever the method.
const CONTROL_ROUTES: [&str; 7] = [
    "init", "freeze", "unfreeze", "collapse", "fsfreeze", "fsthaw", "upgrade",
];
/// Everything below it is ours, between node and envd.
const OWN_PREFIX: &str = "soulbox";
/// No legitimate path is encoded more often.
const MAX_DECODE_ROUNDS: usize = 4;

/// Whether a path could mean a control route to anything that reads it after us: decoded as often
/// as it can be, with empty, `.` and `..` segments resolved.
pub(crate) fn is_control_route(path: &str) -> bool {
    let mut path = Cow::Borrowed(path);
    for _ in 0..MAX_DECODE_ROUNDS {
        if names_control_route(&path) {
            return true;
        }
        let decoded = percent_decode_str(&path).decode_utf8_lossy().into_owned();
        if decoded == *path {
            return false;
        }
        path = Cow::Owned(decoded);
    }
    true
}

fn names_control_route(path: &str) -> bool {
    let raw: Vec<&str> = path
        .split(['/', '\\'])
        .filter(|segment| !matches!(*segment, "" | "."))
        .collect();
    let mut clean: Vec<&str> = Vec::new();
    for segment in &raw {
        if *segment == ".." {
            clean.pop();
        } else {
            clean.push(segment);
        }
    }
    let own = |segments: &[&str]| {
        segments
            .first()
            .is_some_and(|first| first.eq_ignore_ascii_case(OWN_PREFIX))
    };
    // A server that does not resolve `..` may still match the prefix as it is written.
    own(&raw)
        || own(&clean)
        || matches!(clean.as_slice(), [only] if CONTROL_ROUTES.iter().any(|r| r.eq_ignore_ascii_case(only)))
}

#[cfg(test)]
mod tests {
    use super::is_control_route;

    #[test]
    fn control_routes_are_found_however_they_are_spelled() {
        for path in [
            "/init",
            "/init/",
            "//init",
            "/./init",
            "/files/../init",
            "/%69nit",
            "/files/%2e%2e/init",
            "/files%2f..%2finit",
            "/%2569nit",
            "/freeze",
            "/unfreeze",
            "/collapse",
            "/fsfreeze",
            "/fsthaw",
            "/upgrade",
            "/INIT",
            "/..//init",
            "/soulbox/ring",
            "/soulbox",
            "//soulbox/x",
            "/%73oulbox/ring",
            "/soulbox/../health",
            "/x/../soulbox/ring",
            "/%25252525252569nit",
        ] {
            assert!(is_control_route(path), "{path}");
        }
    }

    #[test]
    fn everything_else_passes() {
        for path in [
            "/",
            "",
            "*",
            "/health",
            "/files",
            "/initial",
            "/init/x",
            "/process.Process/Start",
            "/files/init",
            "/files/soulbox",
            "/a%20b",
            "/100%",
            "/%ff",
        ] {
            assert!(!is_control_route(path), "{path}");
        }
    }
}
