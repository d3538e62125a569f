//! AWS Signature Version 4: a request proves that its sender knows a secret key.

use aws_lc_rs::hmac;
use soulbox_types::Secret;

use crate::digest::Digest;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

#[derive(Debug)]
pub(crate) struct Signer<'a> {
    pub(crate) access_key_id: &'a str,
    pub(crate) secret: &'a Secret,
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
}

#[derive(Debug)]
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    /// Lower case, sorted by name.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
    /// `20150830T123600Z`.
    pub(crate) time: &'a str,
}

impl Signer<'_> {
    /// The value of the `Authorization` header.
    pub(crate) fn authorization(&self, request: &Signed<'_>) -> String {
        let date = request.time.get(..8).unwrap_or_default();
        let scope = format!("{date}/{}/{}/aws4_request", self.region, self.service);
        let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines = request.headers.iter();
        let lines = lines.flat_map(|(name, value)| [name, ":", value.trim(), "\n"]);
        let headers: String = lines.collect();
        let canonical = format!(
            "{}\n{}\n{}\n{headers}\n{names}\n{}",
            request.method,
            request.path,
            request.query,
            Digest::of(request.body).hex()
        );
        let to_sign = format!(
            "{ALGORITHM}\n{}\n{scope}\n{}",
            request.time,
            Digest::of(canonical.as_bytes()).hex()
        );
        let first = format!("AWS4{}", self.secret.expose());
        let key = [date, self.region, self.service, "aws4_request"]
            .iter()
            .fold(first.into_bytes(), |key, part| mac(&key, part));
        let signature = hex::encode(mac(&key, &to_sign));
        format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.access_key_id
        )
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(service: &str, request: &Signed<'_>) -> String {
        let secret = Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let signer = Signer {
            access_key_id: "AKIDEXAMPLE",
            secret: &secret,
            region: "us-east-1",
            service,
        };
        let text = signer.authorization(request);
        text.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    /// `get-vanilla` of AWS's published test suite.
    #[test]
    fn the_published_plain_example_has_the_published_signature() {
        let request = Signed {
            method: "GET",
            path: "/",
            query: "",
            headers: &[
                ("host", "example.amazonaws.com"),
                ("x-amz-date", "20150830T123600Z"),
            ],
            body: b"",
            time: "20150830T123600Z",
        };
        assert_eq!(
            signature("service", &request),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
    }

    /// The example of AWS's documentation, which lists the users of IAM.
    #[test]
    fn the_documentations_example_has_the_documented_signature() {
        let request = Signed {
            method: "GET",
            path: "/",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &[
                (
                    "content-type",
                    "application/x-www-form-urlencoded; charset=utf-8",
                ),
                ("host", "iam.amazonaws.com"),
                ("x-amz-date", "20150830T123600Z"),
            ],
            body: b"",
            time: "20150830T123600Z",
        };
        assert_eq!(
            signature("iam", &request),
            "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
    }
}
