//! Amazon's registry takes passwords that its API gives out for twelve hours.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Method, Uri, header};
use serde::Deserialize;
use soulbox_types::Secret;

use super::{
    failure::failure,
    http::{Http, RegistryRequest},
    sigv4::{Signed, Signer},
};
use crate::{Error, Result};

const TARGET: &str = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken";
const CONTENT_TYPE: &str = "application/x-amz-json-1.1";
const BODY: &[u8] = b"{}";
const MAX_ANSWER: u64 = 256 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    authorization_data: Vec<Token>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    authorization_token: String,
}

/// User name and password for the registries of one region.
pub(crate) async fn password(
    http: &Http,
    access_key_id: &str,
    secret: &Secret,
    region: &str,
) -> Result<(String, Secret)> {
    let host = host(region)?;
    let time = jiff::Timestamp::now()
        .strftime("%Y%m%dT%H%M%SZ")
        .to_string();
    let signer = Signer {
        access_key_id,
        secret,
        region,
        service: "ecr",
    };
    let authorization = signer.authorization(&Signed {
        method: "POST",
        path: "/",
        query: "",
        headers: &[
            ("content-type", CONTENT_TYPE),
            ("host", &host),
            ("x-amz-date", &time),
            ("x-amz-target", TARGET),
        ],
        body: BODY,
        time: &time,
    });
    let uri: Uri = format!("https://{host}/")
        .parse()
        .map_err(|_| Error::Aws(format!("{region:?} is not a region")))?;
    let mut request = RegistryRequest::get(uri);
    request.method = Method::POST;
    request.body = Bytes::from_static(BODY);
    let value = |text: &str| {
        HeaderValue::from_str(text)
            .map_err(|_| Error::Aws("the access key id has characters that it cannot have".into()))
    };
    request
        .headers
        .insert(header::CONTENT_TYPE, value(CONTENT_TYPE)?);
    request.headers.insert("x-amz-date", value(&time)?);
    request.headers.insert("x-amz-target", value(TARGET)?);
    let mut authorization = value(&authorization)?;
    authorization.set_sensitive(true);
    request.headers.insert(header::AUTHORIZATION, authorization);
    let mut answer = http.send(request).await?;
    if !answer.response.status().is_success() {
        let refused = failure(answer, "a registry password").await;
        return Err(Error::Aws(refused.to_string()));
    }
    let body = answer.whole("AWS's answer", MAX_ANSWER).await?;
    read(&body).ok_or_else(|| Error::Aws("the answer has no password in it".to_owned()))
}

fn host(region: &str) -> Result<String> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if region.is_empty() || region.len() > 32 || !region.bytes().all(good) {
        return Err(Error::Aws(format!("{region:?} is not a region")));
    }
    let china = if region.starts_with("cn-") { ".cn" } else { "" };
    Ok(format!("api.ecr.{region}.amazonaws.com{china}"))
}

fn read(body: &[u8]) -> Option<(String, Secret)> {
    let tokens: Tokens = serde_json::from_slice(body).ok()?;
    let token = tokens.authorization_data.into_iter().next()?;
    let decoded = STANDARD.decode(token.authorization_token).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), Secret::new(password)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_token_is_a_user_and_a_password() {
        let body = br#"{"authorizationData":[{"authorizationToken":"QVdTOnB3OngK","expiresAt":1.0,"proxyEndpoint":"https://x"}]}"#;
        let (user, password) = read(body).unwrap();
        assert_eq!((user.as_str(), password.expose()), ("AWS", "pw:x\n"));
        assert!(read(b"{\"authorizationData\":[]}").is_none());
    }

    #[test]
    fn regions_cannot_smuggle_a_host() {
        assert_eq!(
            host("eu-west-1").unwrap(),
            "api.ecr.eu-west-1.amazonaws.com"
        );
        assert!(host("cn-north-1").unwrap().ends_with(".com.cn"));
        for bad in ["", "evil.example/", "a.b", "x@y", "EU"] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }
}
