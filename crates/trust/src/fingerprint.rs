use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

/// The SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` prints it. `None`: no certificate is
/// in the text.
pub fn fingerprint(pem: &str) -> Option<String> {
    let body = pem
        .split("-----BEGIN CERTIFICATE-----")
        .nth(1)?
        .split("-----END CERTIFICATE-----")
        .next()?;
    let body: String = body.split_whitespace().collect();
    let der = STANDARD.decode(body).ok()?;
    let mut text = String::new();
    for (index, byte) in Sha256::digest(der).iter().enumerate() {
        let colon = if index == 0 { "" } else { ":" };
        // Writing into a String cannot fail.
        write!(text, "{colon}{byte:02X}").unwrap_or_default();
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_certificate_has_one() {
        // openssl's answer for these three bytes, which it never reads as a certificate.
        let pem = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";
        let abc = fingerprint(pem).unwrap();
        assert!(
            abc.starts_with("BA:78:16:BF:8F:01:CF:EA:") && abc.len() == 95,
            "{abc}"
        );
        assert_eq!(fingerprint("no certificate"), None);
    }
}
