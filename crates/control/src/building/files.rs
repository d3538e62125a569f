//! The files that a build copies: uploaded ahead of it, under a hash that the client computed, by
//! a link that needs no key.

use std::{io, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use soulbox_types::{Secret, TemplateId, TenantId, UnixMillis};

use super::definition::check_hash;
use crate::{Control, Error, Reference, Result, Tenant, template::Found};

const LINK_LIFE: Duration = Duration::from_hours(1);

/// Where to put files, relative to the server's address.
#[derive(Debug, Clone)]
pub struct FileLink {
    /// They are here already.
    pub present: bool,
    pub path: String,
}

/// What a link carries.
#[derive(Debug, Clone)]
pub struct UploadTicket {
    pub template: String,
    pub hash: String,
    pub expires: u64,
    pub signature: String,
}

impl Control {
    pub async fn file_link(&self, tenant: &Tenant, template: &str, hash: &str) -> Result<FileLink> {
        let scheduler = self.scheduler()?;
        check_hash("the hash", hash)?;
        let reference = Reference::parse(template)?;
        let id = match self.look_up_template(tenant, &reference)? {
            Some(Found::Built(built)) if built.owned_by(tenant) => built.row.id,
            Some(Found::Built(_)) => return Err(Error::TemplateOfAnother(template.to_owned())),
            _ => return Err(Error::TemplateNotFound(template.to_owned())),
        };
        let expires = UnixMillis::now().plus(LINK_LIFE).0;
        let signature = self.upload_signature(&tenant.id, &id, hash, expires);
        Ok(FileLink {
            present: scheduler.config.builder.has_files(&tenant.id, hash).await,
            path: format!(
                "/templates/{id}/files/{hash}?expires={expires}&signature={}",
                signature.expose()
            ),
        })
    }

    pub async fn receive_files(
        &self,
        ticket: &UploadTicket,
        upload: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<()> {
        let scheduler = self.scheduler()?;
        check_hash("the hash", &ticket.hash)?;
        let built = self
            .templates
            .by_id(&ticket.template)
            .ok_or(Error::UploadLink)?;
        let (tenant, id) = (&built.row.tenant, &built.row.id);
        let signature = self.upload_signature(tenant, id, &ticket.hash, ticket.expires);
        if !signature.matches(&ticket.signature) || ticket.expires <= UnixMillis::now().0 {
            return Err(Error::UploadLink);
        }
        let received = scheduler
            .config
            .builder
            .receive_files(tenant, &ticket.hash, upload.boxed());
        Ok(received.await?)
    }

    fn upload_signature(
        &self,
        tenant: &TenantId,
        template: &TemplateId,
        hash: &str,
        expires: u64,
    ) -> Secret {
        let label = format!("upload-{tenant}/{template}/{hash}/{expires}");
        Secret::new(hex::encode(self.tokens.derive(&label)))
    }
}
