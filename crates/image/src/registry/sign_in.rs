//! Authenticates to a registry, as its challenge asks.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderValue, Uri, header};
use serde::Deserialize;
use soulbox_types::Secret;

use super::{
    aws,
    challenge::Challenge,
    failure::failure,
    http::{Http, RegistryRequest},
};
use crate::{Credentials, Error, Result};

const MAX_TOKEN_ANSWER: u64 = 1 << 20;
/// How Google's registries call somebody who comes with a service account's key.
const GOOGLE_USER: &str = "_json_key";

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

/// The value of the `Authorization` header that a registry wants to see.
pub(crate) async fn authorization(
    http: &Http,
    challenge: &Challenge,
    credentials: Option<&Credentials>,
    repository: &str,
) -> Result<Option<HeaderValue>> {
    let password = match credentials {
        Some(credentials) => Some(password(http, credentials).await?),
        None => None,
    };
    let basic = password.map(|(user, password)| basic(&user, &password));
    match challenge {
        Challenge::Basic => Ok(basic),
        Challenge::Bearer {
            realm,
            service,
            scope,
        } => {
            let usual = || format!("repository:{repository}:pull");
            let scope = scope.clone().unwrap_or_else(usual);
            let uri = token_address(realm, service.as_deref(), &scope)?;
            let mut request = RegistryRequest::get(uri);
            if let Some(basic) = basic {
                request.headers.insert(header::AUTHORIZATION, basic);
            }
            token(http, request, repository).await.map(Some)
        }
    }
}

async fn password(http: &Http, credentials: &Credentials) -> Result<(String, Secret)> {
    match credentials {
        Credentials::Basic { username, password } => Ok((username.clone(), password.clone())),
        Credentials::Gcp {
            service_account_json,
        } => Ok((GOOGLE_USER.to_owned(), service_account_json.clone())),
        Credentials::Aws {
            access_key_id,
            secret_access_key,
            region,
        } => aws::password(http, access_key_id, secret_access_key, region).await,
    }
}

async fn token(http: &Http, request: RegistryRequest, repository: &str) -> Result<HeaderValue> {
    let mut answer = http.send(request).await?;
    if !answer.response.status().is_success() {
        return Err(failure(answer, &format!("a token for {repository}")).await);
    }
    let body = answer
        .whole("the token server's answer", MAX_TOKEN_ANSWER)
        .await?;
    let bad = |reason: &str| Error::Malformed {
        what: "the token server's answer".to_owned(),
        reason: reason.to_owned(),
    };
    let read: Token = serde_json::from_slice(&body).map_err(|error| bad(&error.to_string()))?;
    let token = match read.token.as_str() {
        "" => read.access_token,
        token => token.to_owned(),
    };
    if token.is_empty() {
        return Err(bad("there is no token in it"));
    }
    secret_header(&format!("Bearer {token}")).ok_or_else(|| bad("the token cannot be sent"))
}

fn token_address(realm: &str, service: Option<&str>, scope: &str) -> Result<Uri> {
    let bad = |reason: &str| Error::Malformed {
        what: "the registry's token server".to_owned(),
        reason: reason.to_owned(),
    };
    let mut query = form_urlencoded::Serializer::new(String::new());
    if let Some(service) = service {
        query.append_pair("service", service);
    }
    query.append_pair("scope", scope);
    let between = if realm.contains('?') { '&' } else { '?' };
    let text = format!("{realm}{between}{}", query.finish());
    let uri: Uri = text
        .parse()
        .map_err(|_| bad("its address cannot be read"))?;
    match uri.scheme_str() {
        Some("http" | "https") => Ok(uri),
        _ => Err(bad("its address is neither http nor https")),
    }
}

fn basic(user: &str, password: &Secret) -> HeaderValue {
    let encoded = STANDARD.encode(format!("{user}:{}", password.expose()));
    // Base64 always fits.
    secret_header(&format!("Basic {encoded}")).unwrap_or_else(|| HeaderValue::from_static(""))
}

fn secret_header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_servers_address_carries_service_and_scope() {
        let uri = token_address(
            "https://a.example/token?x=1",
            Some("r e"),
            "repository:a:pull",
        );
        assert_eq!(
            uri.unwrap().to_string(),
            "https://a.example/token?x=1&service=r+e&scope=repository%3Aa%3Apull"
        );
        assert!(token_address("file:///x", None, "s").is_err());
        assert!(token_address("", None, "s").is_err());
    }

    #[test]
    fn passwords_are_not_printed() {
        let header = basic("me", &Secret::new("hunter2"));
        assert_eq!(header.as_bytes(), b"Basic bWU6aHVudGVyMg==");
        assert!(!format!("{header:?}").contains("bWU6"));
    }
}
