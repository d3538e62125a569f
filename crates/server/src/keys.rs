//! API keys without a server: directly in the database of a data folder. For an operator who lost the
//! first key. SQLite allows this while a server runs.

use std::path::{Path, PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use sha2::{Digest, Sha256};
use soulbox_store::{KeyRow, Store, TenantRow};
use soulbox_types::{Secret, UnixMillis, id::fill_random};
use uuid::Uuid;

pub(crate) const DATABASE: &str = "soulbox.db";
const TENANT: &str = "default";
/// E2B's format: clients refuse keys of another shape.
const PREFIX: &str = "e2b_";
const RAW_LENGTH: usize = 20;
const SHOWN_FIRST: usize = 2;
const SHOWN_LAST: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum KeyStoreError {
    #[error(
        "{0} holds no database of a soulbox server: start `soulbox serve` once, or correct --data-dir"
    )]
    NoDatabase(PathBuf),
    #[error("the database has no tenant `{TENANT}`: start `soulbox serve` once")]
    NoTenant,
    #[error("no API key has the id {0}")]
    NoSuchKey(String),
    #[error("this is the last API key; make another one first")]
    LastKey,
    #[error("could not use the database")]
    Store(#[from] soulbox_store::Error),
}

/// What may be shown of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedKey {
    pub id: String,
    pub name: String,
    /// `e2b_ab...wxyz`
    pub masked: String,
    pub created_at: UnixMillis,
    pub last_used_at: Option<UnixMillis>,
}

/// The keys of the tenant `default` in a data folder.
#[derive(Debug)]
pub struct KeyStore {
    store: Store,
    tenant: TenantRow,
}

impl KeyStore {
    pub async fn open(data_dir: &Path) -> Result<Self, KeyStoreError> {
        let path = data_dir.join(DATABASE);
        // Opening would make an empty one.
        if !path.is_file() {
            return Err(KeyStoreError::NoDatabase(data_dir.to_owned()));
        }
        let store = Store::open(&path).await?;
        let tenant = store
            .tenants()
            .await?
            .into_iter()
            .find(|tenant| tenant.slug == TENANT);
        Ok(Self {
            store,
            tenant: tenant.ok_or(KeyStoreError::NoTenant)?,
        })
    }

    /// The key in clear: it cannot be seen again.
    pub async fn create(&self, name: &str) -> Result<(Secret, ListedKey), KeyStoreError> {
        let mut raw = [0_u8; RAW_LENGTH];
        fill_random(&mut raw);
        let value = hex::encode(raw);
        let row = KeyRow {
            id: Uuid::now_v7().to_string(),
            tenant: self.tenant.id.clone(),
            name: name.to_owned(),
            hash: format!("$sha256${}", STANDARD_NO_PAD.encode(Sha256::digest(raw))),
            mask_prefix: value.chars().take(SHOWN_FIRST).collect(),
            mask_suffix: value.chars().skip(value.len() - SHOWN_LAST).collect(),
            value_length: u32::try_from(value.len()).unwrap_or_default(),
            created_at: UnixMillis::now(),
            last_used_at: None,
        };
        self.store.insert_key(&row).await?;
        Ok((Secret::new(format!("{PREFIX}{value}")), listed(&row)))
    }

    /// Oldest first.
    pub async fn list(&self) -> Result<Vec<ListedKey>, KeyStoreError> {
        let keys = self.store.keys().await?;
        Ok(keys
            .iter()
            .filter(|key| key.tenant == self.tenant.id)
            .map(listed)
            .collect())
    }

    pub async fn remove(&self, id: &str) -> Result<(), KeyStoreError> {
        let keys = self.list().await?;
        if !keys.iter().any(|key| key.id == id) {
            return Err(KeyStoreError::NoSuchKey(id.to_owned()));
        }
        if keys.len() == 1 {
            return Err(KeyStoreError::LastKey);
        }
        self.store.delete_key(id).await?;
        Ok(())
    }
}

fn listed(row: &KeyRow) -> ListedKey {
    ListedKey {
        id: row.id.clone(),
        name: row.name.clone(),
        masked: format!("{PREFIX}{}...{}", row.mask_prefix, row.mask_suffix),
        created_at: row.created_at,
        last_used_at: row.last_used_at,
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use soulbox_control::{Control, ControlConfig};
    use soulbox_types::Limits;

    use super::*;

    async fn control(dir: &Path) -> Arc<Control> {
        let store = Store::open(&dir.join(DATABASE)).await.unwrap();
        let config = ControlConfig {
            seed: Secret::random(),
            default_tier: soulbox_types::Tier::default(),
            max_timeout: Duration::from_hours(1),
            default_limits: Limits::default(),
            max_sandboxes_per_tenant: 1,
            templates: Vec::new(),
            volumes: None,
            volume_limit_mib: 64,
            webhooks: soulbox_control::WebhookConfig::default(),
            builds: None,
        };
        Control::open(
            config,
            store,
            Arc::new(soulbox_testkit::MemoryNode::default()),
        )
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn a_key_made_without_the_server_is_one_that_it_accepts() {
        let dir = tempfile::tempdir().unwrap();
        let first = control(dir.path())
            .await
            .ensure_default_tenant()
            .await
            .unwrap()
            .unwrap();
        let keys = KeyStore::open(dir.path()).await.unwrap();
        let (key, made) = keys.create("spare").await.unwrap();

        let control = control(dir.path()).await;
        let tenant = control.authenticate(key.expose()).unwrap();
        assert_eq!(tenant, control.authenticate(first.key.expose()).unwrap());

        assert_eq!(keys.list().await.unwrap().len(), 2);
        keys.remove(&first.info.id).await.unwrap();
        let left = keys.list().await.unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!((&left[0].id, &left[0].masked), (&made.id, &made.masked));
        assert!(matches!(
            keys.remove(&made.id).await,
            Err(KeyStoreError::LastKey)
        ));
        assert!(matches!(
            keys.remove("x").await,
            Err(KeyStoreError::NoSuchKey(_))
        ));
    }

    #[tokio::test]
    async fn a_folder_without_a_server_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let error = KeyStore::open(dir.path()).await.unwrap_err().to_string();
        assert!(error.contains("soulbox serve"), "{error}");
        assert_eq!(fs_err::read_dir(dir.path()).unwrap().count(), 0);
    }
}
