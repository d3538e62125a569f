//! Stored secrets: their values go in, and never come out through the API.

use std::collections::BTreeMap;

use soulbox_store::{Inserted, SecretRow};
use soulbox_types::{Secret, UnixMillis};
use uuid::Uuid;

use crate::{Control, Error, Result, Tenant};

const MAX_SECRETS: usize = 1000;
const MAX_NAME: usize = 128;
/// Ids begin with it, so names must not.
const ID_PREFIX: &str = "sec_";
const MAX_VALUE_BYTES: usize = 64 * 1024;
const MAX_METADATA_ENTRIES: usize = 32;
const MAX_METADATA_KEY: usize = 128;
const MAX_METADATA_VALUE: usize = 1024;
const MAX_METADATA_BYTES: usize = 8192;
/// Two clients that write one secret at the same moment both succeed, one after the other.
const TRIES: u32 = 8;

/// Everything about a secret except its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretInfo {
    pub id: String,
    pub name: String,
    pub version: i64,
    pub metadata: BTreeMap<String, String>,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
}

impl Control {
    /// In no particular order.
    pub async fn secrets(&self, tenant: &Tenant) -> Result<Vec<SecretInfo>> {
        let rows = self.store.secrets(&tenant.id).await?;
        Ok(rows.into_iter().map(SecretInfo::from).collect())
    }

    pub async fn create_secret(
        &self,
        tenant: &Tenant,
        name: &str,
        value: &Secret,
        metadata: BTreeMap<String, String>,
    ) -> Result<SecretInfo> {
        let name = checked_name(name)?;
        check_value(value)?;
        check_metadata(&metadata)?;
        let id = format!("{ID_PREFIX}{}", Uuid::new_v4().simple());
        let now = UnixMillis::now();
        let row = SecretRow {
            sealed: self.vault.seal(&tenant.id, &id, value)?,
            tenant: tenant.id.clone(),
            name,
            version: 1,
            metadata,
            created_at: now,
            updated_at: now,
            id,
        };
        match self.store.insert_secret(&row, MAX_SECRETS).await? {
            Inserted::Yes => {
                tracing::info!(secret_id = row.id, "secret made");
                Ok(row.into())
            }
            Inserted::NameTaken => Err(Error::SecretExists(row.name)),
            Inserted::Full => Err(Error::TooManySecrets(MAX_SECRETS)),
        }
    }

    /// By id or name.
    pub async fn secret(&self, tenant: &Tenant, id_or_name: &str) -> Result<SecretInfo> {
        Ok(self.secret_row(tenant, id_or_name).await?.into())
    }

    /// A new version. Metadata that is not given stays.
    pub async fn update_secret(
        &self,
        tenant: &Tenant,
        id_or_name: &str,
        value: &Secret,
        metadata: Option<BTreeMap<String, String>>,
    ) -> Result<SecretInfo> {
        check_value(value)?;
        if let Some(metadata) = &metadata {
            check_metadata(metadata)?;
        }
        for _ in 0..TRIES {
            let mut row = self.secret_row(tenant, id_or_name).await?;
            row.sealed = self.vault.seal(&tenant.id, &row.id, value)?;
            row.version += 1;
            row.updated_at = UnixMillis::now();
            if let Some(metadata) = metadata.clone() {
                row.metadata = metadata;
            }
            if self.store.update_secret(&row).await? {
                tracing::info!(secret_id = row.id, version = row.version, "secret changed");
                return Ok(row.into());
            }
        }
        Err(Error::SecretBusy(id_or_name.to_owned()))
    }

    pub async fn delete_secret(&self, tenant: &Tenant, id_or_name: &str) -> Result<()> {
        let row = self.secret_row(tenant, id_or_name).await?;
        if !self.store.delete_secret(&tenant.id, &row.id).await? {
            return Err(Error::SecretNotFound(id_or_name.to_owned()));
        }
        tracing::info!(secret_id = row.id, "secret deleted");
        Ok(())
    }

    /// The value itself, for what acts on behalf of the tenant inside the server.
    pub async fn secret_value(&self, tenant: &Tenant, name: &str) -> Result<Secret> {
        let row = self.secret_row(tenant, name).await?;
        self.vault.open(&tenant.id, &row.id, &row.sealed)
    }

    async fn secret_row(&self, tenant: &Tenant, id_or_name: &str) -> Result<SecretRow> {
        let lower = id_or_name.to_ascii_lowercase();
        let found = self.store.secret(&tenant.id, &lower).await?;
        found.ok_or_else(|| Error::SecretNotFound(id_or_name.to_owned()))
    }
}

impl From<SecretRow> for SecretInfo {
    fn from(row: SecretRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            version: row.version,
            metadata: row.metadata,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

fn checked_name(name: &str) -> Result<String> {
    let fits = (1..=MAX_NAME).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if !fits {
        return invalid(format!(
            "the name of a secret has 1 to {MAX_NAME} characters of a-z, A-Z, 0-9, - and _"
        ));
    }
    let name = name.to_ascii_lowercase();
    if name.starts_with(ID_PREFIX) {
        return invalid(format!(
            "the name of a secret cannot begin with {ID_PREFIX}"
        ));
    }
    Ok(name)
}

fn check_value(value: &Secret) -> Result<()> {
    match value.expose().len() {
        0 => invalid("the value of a secret cannot be empty".to_owned()),
        1..=MAX_VALUE_BYTES => Ok(()),
        _ => invalid(format!(
            "the value of a secret has at most {MAX_VALUE_BYTES} bytes"
        )),
    }
}

fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<()> {
    let total: usize = metadata.iter().map(|(k, v)| k.len() + v.len()).sum();
    let fits = metadata.len() <= MAX_METADATA_ENTRIES
        && total <= MAX_METADATA_BYTES
        && metadata.iter().all(|(key, value)| {
            (1..=MAX_METADATA_KEY).contains(&key.len()) && value.len() <= MAX_METADATA_VALUE
        });
    if fits {
        return Ok(());
    }
    invalid(format!(
        "the metadata of a secret has at most {MAX_METADATA_ENTRIES} entries, with keys of 1 to \
         {MAX_METADATA_KEY} bytes, values of {MAX_METADATA_VALUE} and {MAX_METADATA_BYTES} in all"
    ))
}

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::Invalid(message))
}
