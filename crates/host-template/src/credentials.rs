//! Separates harmless lines of configuration from those that hold passwords or tokens.

/// Words in the name of a setting whose value is for one person only.
const NAMES: [&str; 10] = [
    "_auth",
    "authtoken",
    "token",
    "password",
    "passwd",
    "secret",
    "apikey",
    "api_key",
    "username",
    "keyfile",
];

/// Whether a line of an ini-like file may be shown to anybody.
pub(crate) fn is_harmless(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    !has_user_info(&lower) && !NAMES.iter().any(|name| lower.contains(name))
}

pub(crate) fn has_any(bytes: &[u8]) -> bool {
    // What cannot be read as text cannot be judged either.
    std::str::from_utf8(bytes).map_or(true, |text| !text.lines().all(is_harmless))
}

/// The harmless lines. A continuation (indented) of a dropped line goes with it.
pub(crate) fn harmless_lines(bytes: &[u8]) -> String {
    let mut kept = String::new();
    let mut dropping = false;
    for line in String::from_utf8_lossy(bytes).lines() {
        let continuation = line.starts_with([' ', '\t']) && !line.trim().is_empty();
        dropping = !is_harmless(line) || (continuation && dropping);
        if !dropping {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// `scheme://user:password@host`, also without a password: a user name may be the token.
fn has_user_info(line: &str) -> bool {
    line.match_indices("://").any(|(at, mark)| {
        let rest = &line[at + mark.len()..];
        let end = rest.find(|c: char| c == '/' || c.is_whitespace() || c == '"' || c == '\'');
        rest[..end.unwrap_or(rest.len())].contains('@')
    }) || line.contains("%40") && line.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_registries_and_certificates_stay() {
        let text = "[global]\ncert = /etc/ssl/ca.crt\nindex-url = https://mirror.example/simple\n";
        assert_eq!(harmless_lines(text.as_bytes()), text);
        assert!(!has_any(
            b"cafile=/etc/ssl/ca.crt\nregistry=http://[::1]:4873/\n"
        ));
    }

    #[test]
    fn tokens_and_passwords_go() {
        for line in [
            "//registry.example/:_authToken=abc",
            "_auth = dXNlcjpwYXNz",
            "index-url = https://me:secret@mirror.example/simple",
            "proxy=http://token@proxy:3128",
            "Acquire::http::Proxy \"http://u:p@proxy:3128\";",
            "HTTP_PASSWORD=x",
            "extra-index-url = https://oauth2accesstoken@x.example/simple",
        ] {
            assert!(has_any(line.as_bytes()), "{line}");
            assert_eq!(harmless_lines(line.as_bytes()), "", "{line}");
        }
    }

    #[test]
    fn continued_lines_go_with_the_line_that_they_continue() {
        let text = "[global]\nextra-index-url =\n    https://a:b@x.example\n    https://y.example\nno-color = true\n";
        assert_eq!(
            harmless_lines(text.as_bytes()),
            "[global]\nextra-index-url =\nno-color = true\n"
        );
    }
}
