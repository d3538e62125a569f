//! The client's side of the OCI distribution protocol.
//!
//! # Layout
//! - `policy`: whom the operator trusts to be elsewhere, or to speak plain http
//! - `connect`: connections to the very address that was checked
//! - `http`: one request, redirects included
//! - `failure`: answers that are not what was asked for
//! - `challenge`, `sign_in`, `aws`, `sigv4`: who we are
//! - `backoff`: when to try again
//! - `session`: one repository of one registry
//! - `blob`: downloads that survive a cut connection

mod aws;
mod backoff;
mod blob;
mod challenge;
mod connect;
mod failure;
mod http;
mod policy;
mod session;
mod sign_in;
mod sigv4;

use std::sync::Arc;

pub(crate) use self::session::{Session, check};
use self::{http::Http, policy::Policy};
use crate::{
    Credentials, Error, ImageConfig, Result, digest::Digest, manifest::ImageManifest,
    reference::Reference,
};

#[derive(Debug, Clone)]
pub(crate) struct Registries {
    http: Http,
    policy: Arc<Policy>,
}

impl Registries {
    pub(crate) fn new(config: &ImageConfig) -> Result<Self> {
        let policy = Arc::new(Policy::new(config)?);
        let http = Http::new(config, Arc::clone(&policy));
        Ok(Self { http, policy })
    }

    /// The manifest for this machine, its digest, and where it was: the mirror, which gets no
    /// credentials, or else the registry itself.
    pub(crate) async fn manifest(
        &self,
        reference: &Reference,
        credentials: Option<&Credentials>,
    ) -> Result<(Session, ImageManifest, Digest)> {
        let mut of_mirror = None;
        if let Some(mirror) = self.policy.mirror(&reference.registry) {
            let session = Session::new(&self.http, mirror.clone(), reference, None);
            match session.manifest(reference).await {
                Ok((manifest, digest)) => return Ok((session, manifest, digest)),
                Err(error) if error.is_worth_asking_elsewhere() => of_mirror = Some(error),
                Err(error) => return Err(error),
            }
        }
        let own = async {
            let base = self.http.base(&reference.registry).await?;
            let session = Session::new(&self.http, base, reference, credentials);
            let (manifest, digest) = session.manifest(reference).await?;
            Ok((session, manifest, digest))
        };
        match (own.await, of_mirror) {
            (Ok(found), _) => Ok(found),
            // A machine that only reaches its mirror: what that one said is the reason.
            (Err(Error::Connect { .. } | Error::NoPublicAddress { .. }), Some(error))
            | (Err(error), _) => Err(error),
        }
    }
}
