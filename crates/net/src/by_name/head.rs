//! The host in the head of an HTTP/1 request. As strict as a head can be read: what a server might
//! read in another way (two hosts, folded lines, a lone line feed, a target with a host of its own) is
//! refused.

use super::refusal::Refused;

pub(super) const LARGEST: usize = 16 << 10;
const END: &[u8] = b"\r\n\r\n";

/// Where the head ends; looks only at what may be new since there were `seen` bytes.
pub(super) fn end(bytes: &[u8], seen: usize) -> Option<usize> {
    let from = seen.saturating_sub(END.len() - 1);
    let at = bytes.get(from..)?.windows(END.len());
    at.into_iter()
        .position(|window| window == END)
        .map(|at| from + at + END.len())
}

/// What the first bytes cannot become, however many follow.
pub(super) fn may_become_http(bytes: &[u8]) -> bool {
    bytes.iter().take(1).all(u8::is_ascii_uppercase)
}

/// The name and the port of a whole head.
pub(super) fn read(head: &[u8]) -> Result<(String, Option<u16>), Refused> {
    let head = head.strip_suffix(END).ok_or(Refused::NotHttp)?;
    let head = std::str::from_utf8(head).map_err(|_| Refused::NotHttp)?;
    let mut lines = head.split("\r\n");
    let target = target(lines.next().unwrap_or(""))?;
    let mut host = None;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(Refused::NotHttp)?;
        if name.is_empty() || !name.bytes().all(is_token) || value.bytes().any(is_control) {
            return Err(Refused::NotHttp);
        }
        let value = value.trim_matches([' ', '\t']);
        if name.eq_ignore_ascii_case("host") && host.replace(value).is_some() {
            return Err(Refused::TwoNames);
        }
    }
    let host = host
        .filter(|host| !host.is_empty())
        .ok_or(Refused::NoName)?;
    if target.is_some_and(|target| !target.eq_ignore_ascii_case(host)) {
        return Err(Refused::TwoNames);
    }
    match host.rsplit_once(':') {
        None => Ok((host.to_owned(), None)),
        Some((name, port)) => {
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|_| digits);
            Ok((name.to_owned(), Some(port.ok_or(Refused::NotAName)?)))
        }
    }
}

/// The host in the target, which only requests to a proxy have.
fn target(line: &str) -> Result<Option<&str>, Refused> {
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refused::NotHttp);
    };
    let visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if method.is_empty() || !method.bytes().all(is_token) || !visible(target) {
        return Err(Refused::NotHttp);
    }
    if method == "CONNECT" {
        return Err(Refused::Proxying);
    }
    if target.starts_with('/') || target == "*" {
        return Ok(None);
    }
    let (scheme, rest) = target.split_once("://").ok_or(Refused::NotHttp)?;
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(Refused::Proxying);
    }
    Ok(Some(rest.split(['/', '?', '#']).next().unwrap_or("")))
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(lines: &str) -> Result<(String, Option<u16>), Refused> {
        read(format!("{}\r\n\r\n", lines.replace('\n', "\r\n")).as_bytes())
    }

    #[test]
    fn the_host_is_found_with_and_without_its_port() {
        let host = |text: &str, port| Ok((text.to_owned(), port));
        assert_eq!(ask("GET / HTTP/1.1\nHost: a.com"), host("a.com", None));
        assert_eq!(
            ask("GET /x?y HTTP/1.0\nX: y\nhOsT:\t a.com:80 "),
            host("a.com", Some(80))
        );
        assert_eq!(
            ask("OPTIONS * HTTP/1.1\nHost: a.com\nX:"),
            host("a.com", None)
        );
        assert_eq!(
            ask("GET http://A.com/x HTTP/1.1\nHost: a.com"),
            host("a.com", None)
        );
    }

    #[test]
    fn two_hosts_in_any_form_are_refused() {
        for lines in [
            "GET / HTTP/1.1\nHost: a.com\nHost: a.com",
            "GET / HTTP/1.1\nHost: a.com\nHOST: b.com",
            "GET http://b.com/ HTTP/1.1\nHost: a.com",
            "GET http://x@a.com/ HTTP/1.1\nHost: a.com",
        ] {
            assert_eq!(ask(lines), Err(Refused::TwoNames), "{lines}");
        }
    }

    #[test]
    fn what_others_may_read_in_another_way_is_refused() {
        for head in [
            "GET / HTTP/1.1\r\nX: a\nHost: b.com\r\nHost: a.com\r\n\r\n",
            "GET / HTTP/1.1\r\nX: a\rHost: b.com\r\nHost: a.com\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.com\r\n b.com\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a.com\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\0.com\r\n\r\n",
            "GET /\thttp HTTP/1.1\r\nHost: a.com\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: a.com\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: a.com\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: a.com\r\n\r\n",
            "GET a.com HTTP/1.1\r\nHost: a.com\r\n\r\n",
            "GET / HTTP/1.1\nHost: a.com\n\n",
        ] {
            assert_eq!(read(head.as_bytes()), Err(Refused::NotHttp), "{head:?}");
        }
        assert_eq!(
            ask("CONNECT a.com:443 HTTP/1.1\nHost: a.com:443"),
            Err(Refused::Proxying)
        );
        assert_eq!(
            ask("GET ftp://a.com/ HTTP/1.1\nHost: a.com"),
            Err(Refused::Proxying)
        );
    }

    #[test]
    fn a_head_without_a_host_or_with_half_of_one_is_refused() {
        assert_eq!(ask("GET / HTTP/1.0"), Err(Refused::NoName));
        assert_eq!(ask("GET / HTTP/1.1\nHost: "), Err(Refused::NoName));
        for host in ["a.com:", "a.com:+80", "a.com:70000", "a.com:x"] {
            let lines = format!("GET / HTTP/1.1\nHost: {host}");
            assert_eq!(ask(&lines), Err(Refused::NotAName), "{host}");
        }
    }
}
