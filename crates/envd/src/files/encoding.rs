//! Which content coding a download gets.

use http::{HeaderMap, header::ACCEPT_ENCODING};

use crate::http::reply::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
}

/// gzip, when it is all that the client offers. Clients that list several codings are HTTP
/// libraries stating what they can undo: compressing for them would only burn the sandbox's cpu.
pub(super) fn negotiate(headers: &HeaderMap) -> Result<Encoding, Failure> {
    let mut gzip = false;
    let mut others = false;
    let mut identity = None;
    let mut any = None;
    let values = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok());
    for item in values.flat_map(|value| value.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts
            .find_map(|part| part.strip_prefix("q="))
            .and_then(|q| q.parse::<f32>().ok())
            .unwrap_or(1.0);
        let wanted = quality > 0.0;
        match name.as_str() {
            "" => {}
            "gzip" | "x-gzip" => gzip = wanted,
            "identity" => identity = Some(wanted),
            "*" => any = Some(wanted),
            _ => others |= wanted,
        }
    }
    let identity = identity.or(any).unwrap_or(true);
    match (gzip, identity) {
        (true, true) if others => Ok(Encoding::Identity),
        (true, _) => Ok(Encoding::Gzip),
        (false, true) => Ok(Encoding::Identity),
        (false, false) => Err(Failure::new(
            http::StatusCode::NOT_ACCEPTABLE,
            "no acceptable encoding: identity and gzip are supported",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(accept: &str) -> Result<Encoding, Failure> {
        negotiate(&HeaderMap::from_iter([(
            ACCEPT_ENCODING,
            accept.parse().unwrap(),
        )]))
    }

    #[test]
    fn gzip_must_be_asked_for_alone() {
        assert_eq!(of("gzip"), Ok(Encoding::Gzip));
        assert_eq!(of("gzip;q=0.5, identity"), Ok(Encoding::Gzip));
        assert_eq!(of("gzip, deflate, br"), Ok(Encoding::Identity));
        assert_eq!(of("gzip;q=0"), Ok(Encoding::Identity));
        assert_eq!(of("*"), Ok(Encoding::Identity));
        assert_eq!(of(""), Ok(Encoding::Identity));
    }

    #[test]
    fn excluding_everything_is_not_acceptable() {
        for accept in ["identity;q=0", "*;q=0", "br, identity;q=0"] {
            assert_eq!(of(accept).unwrap_err().status, 406, "{accept}");
        }
        assert_eq!(of("gzip, br, identity;q=0"), Ok(Encoding::Gzip));
    }
}
