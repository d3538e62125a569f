//! One repository of one registry.

use http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use tokio::sync::Mutex;

use super::{
    backoff::Backoff,
    challenge::challenge,
    failure::failure,
    http::{Http, RegistryRequest, RegistryResponse, shown},
    sign_in,
};
use crate::{
    Credentials, Error, Result,
    digest::Digest,
    manifest::{ACCEPT, Descriptor, ImageManifest, MAX_CONFIG, MAX_MANIFEST, Manifest, malformed},
    reference::Reference,
};

const CONTENT_DIGEST: &str = "docker-content-digest";
/// An index of indexes is allowed, but nobody has one of those.
const MAX_INDEXES: usize = 3;

#[derive(Debug)]
pub(crate) struct Session {
    pub(super) http: Http,
    base: Uri,
    repository: String,
    credentials: Option<Credentials>,
    /// What was accepted last.
    authorization: Mutex<Option<HeaderValue>>,
}

impl Session {
    pub(crate) fn new(
        http: &Http,
        base: Uri,
        reference: &Reference,
        credentials: Option<&Credentials>,
    ) -> Self {
        Self {
            http: http.clone(),
            base,
            repository: reference.repository.clone(),
            credentials: credentials.cloned(),
            authorization: Mutex::new(None),
        }
    }

    pub(crate) fn host(&self) -> String {
        shown(&self.base)
    }

    /// The manifest for this machine, and its digest.
    pub(crate) async fn manifest(&self, reference: &Reference) -> Result<(ImageManifest, Digest)> {
        let mut wanted = reference.wanted();
        let mut expected = reference.digest.clone();
        for _ in 0..MAX_INDEXES {
            let (bytes, digest) = self.manifest_bytes(&wanted, expected.as_ref()).await?;
            match Manifest::parse(&bytes)? {
                Manifest::Image(manifest) => return Ok((manifest, digest)),
                Manifest::Index(found) => {
                    wanted = found.digest.to_string();
                    expected = Some(found.digest);
                }
            }
        }
        Err(malformed(
            "the manifest",
            "it leads to an index again and again",
        ))
    }

    async fn manifest_bytes(
        &self,
        wanted: &str,
        expected: Option<&Digest>,
    ) -> Result<(Vec<u8>, Digest)> {
        let what = format!("{}:{wanted}", self.repository);
        let path = format!("manifests/{wanted}");
        let (bytes, said) = self.document(&path, &what, MAX_MANIFEST).await?;
        let actual = Digest::of(&bytes);
        for expected in [expected, said.as_ref()].into_iter().flatten() {
            check("the manifest", expected, &actual)?;
        }
        Ok((bytes, actual))
    }

    pub(crate) async fn config(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        let what = "the image's configuration";
        if descriptor.size > MAX_CONFIG {
            return Err(Error::TooLarge {
                what: what.to_owned(),
                limit: MAX_CONFIG,
            });
        }
        let path = format!("blobs/{}", descriptor.digest);
        let (bytes, _) = self.document(&path, what, descriptor.size).await?;
        check(what, &descriptor.digest, &Digest::of(&bytes))?;
        Ok(bytes)
    }

    /// Something small, with the digest that the registry says it has.
    async fn document(
        &self,
        path: &str,
        what: &str,
        limit: u64,
    ) -> Result<(Vec<u8>, Option<Digest>)> {
        let mut backoff = Backoff::first(self.http.timeouts);
        loop {
            let tried = async {
                let accept = [(header::ACCEPT, HeaderValue::from_static(ACCEPT))];
                let mut answer = self.get(path, what, &accept).await?;
                let said = answer.response.headers().get(CONTENT_DIGEST);
                let said = said.and_then(|value| Digest::parse(value.to_str().ok()?));
                Ok((answer.whole(what, limit).await?, said))
            };
            match tried.await {
                Ok(done) => return Ok(done),
                Err(error) => backoff.wait(error).await?,
            }
        }
    }

    /// A success, signed in if need be; other answers are errors.
    pub(super) async fn get(
        &self,
        path: &str,
        what: &str,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<RegistryResponse> {
        let address = format!(
            "{}/v2/{}/{path}",
            self.base.to_string().trim_end_matches('/'),
            self.repository
        );
        let uri: Uri = address
            .parse()
            .map_err(|_| malformed(what, "its address cannot be written"))?;
        let mut request = RegistryRequest::get(uri);
        request.headers.extend(headers.iter().cloned());
        let known = self.authorization.lock().await.clone();
        if let Some(known) = known {
            request.headers.insert(header::AUTHORIZATION, known);
        }
        let mut answer = self.http.send(request.clone()).await?;
        if answer.response.status() == StatusCode::UNAUTHORIZED {
            let Some(authorization) = self.sign_in(&answer).await? else {
                return Err(failure(answer, what).await);
            };
            request
                .headers
                .insert(header::AUTHORIZATION, authorization.clone());
            answer = self.http.send(request).await?;
            if answer.response.status().is_success() {
                *self.authorization.lock().await = Some(authorization);
            }
        }
        if answer.response.status().is_success() {
            Ok(answer)
        } else {
            Err(failure(answer, what).await)
        }
    }

    async fn sign_in(&self, refused: &RegistryResponse) -> Result<Option<HeaderValue>> {
        match challenge(refused.response.headers()) {
            Some(challenge) => {
                let credentials = self.credentials.as_ref();
                sign_in::authorization(&self.http, &challenge, credentials, &self.repository).await
            }
            None => Ok(None),
        }
    }
}

pub(crate) fn check(what: &str, expected: &Digest, actual: &Digest) -> Result<()> {
    if expected == actual {
        return Ok(());
    }
    Err(Error::WrongDigest {
        what: what.to_owned(),
        expected: expected.to_string(),
        actual: actual.to_string(),
    })
}
