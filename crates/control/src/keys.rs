//! Tenants and their API keys. All of them are in memory: every request asks.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;
use soulbox_store::{KeyRow, TenantRow};
use soulbox_types::{Secret, TenantId, Tier, UnixMillis};
use uuid::Uuid;

use crate::{Control, Error, Result, api_key, committed::follow, reference::is_word};

/// The operator's: its key is in the data folder.
pub(crate) const DEFAULT_TENANT: &str = "default";
const MAX_NAME_LENGTH: usize = 128;
const MAX_KEYS: usize = 1000;

/// E2B says team, or project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub id: TenantId,
    /// The namespace of its templates.
    pub slug: String,
    pub name: String,
    /// Of its sandboxes that are made without saying which.
    pub tier: Option<Tier>,
}

/// What may be shown of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    pub id: String,
    pub name: String,
    pub prefix: &'static str,
    pub value_length: u32,
    pub mask_prefix: String,
    pub mask_suffix: String,
    pub created_at: UnixMillis,
    pub last_used_at: Option<UnixMillis>,
}

/// A key in clear. This is the only time that it can be seen.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub key: Secret,
    pub info: KeyInfo,
}

#[derive(Debug)]
struct Key {
    row: KeyRow,
    tenant: Arc<Tenant>,
    /// Zero: never. Written to the store now and then, not with every request.
    last_used: AtomicU64,
    last_used_stored: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct KeyRing {
    tenants: RwLock<Vec<Arc<Tenant>>>,
    by_hash: RwLock<HashMap<String, Arc<Key>>>,
    /// One change at a time, so that "the last key" means something.
    pub(crate) changes: tokio::sync::Mutex<()>,
}

impl Control {
    /// First start: makes the tenant `default` with one key. Later: `None`.
    pub async fn ensure_default_tenant(&self) -> Result<Option<NewKey>> {
        match self.create_tenant(DEFAULT_TENANT).await {
            Ok((_, key)) => Ok(Some(key)),
            Err(Error::TenantExists(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A tenant is never without a key: nobody could reach it.
    pub async fn create_tenant(&self, slug: &str) -> Result<(Tenant, NewKey)> {
        if !is_word(slug) || slug.len() > MAX_NAME_LENGTH {
            let message = "the name of a tenant consists of a-z, 0-9, - and _";
            return Err(Error::Invalid(message.to_owned()));
        }
        let _held = self.keys.changes.lock().await;
        let id = Uuid::now_v7().to_string().parse();
        let tenant = TenantRow {
            id: id.map_err(|_| Error::Internal("a fresh UUID is no tenant id"))?,
            slug: slug.to_owned(),
            name: slug.to_owned(),
            tier: None,
            created_at: UnixMillis::now(),
        };
        let (key, row) = new_key(tenant.id.clone(), "first key".to_owned());
        if !self.store.insert_tenant_with_key(&tenant, &row).await? {
            return Err(Error::TenantExists(slug.to_owned()));
        }
        let tenant = self.keys.add_tenant(&tenant);
        let info = self.keys.add(row)?;
        Ok((tenant, NewKey { key, info }))
    }

    pub fn tenant(&self, slug: &str) -> Option<Tenant> {
        self.keys
            .tenants
            .read()
            .iter()
            .find(|t| t.slug == slug)
            .map(|t| Tenant::clone(t))
    }

    /// Whose key this is. From memory.
    pub fn authenticate(&self, api_key: &str) -> Result<Tenant> {
        let hash = api_key::hash(api_key).ok_or(Error::Unauthenticated)?;
        let keys = self.keys.by_hash.read();
        let key = keys.get(&hash).ok_or(Error::Unauthenticated)?;
        key.last_used.store(UnixMillis::now().0, Ordering::Relaxed);
        Ok(Tenant::clone(&key.tenant))
    }

    pub async fn create_key(&self, tenant: &Tenant, name: &str) -> Result<NewKey> {
        let name = checked_name(name)?;
        let _held = self.keys.changes.lock().await;
        if self.keys.of(&tenant.id).len() >= MAX_KEYS {
            return Err(Error::Invalid(format!(
                "a tenant has at most {MAX_KEYS} API keys"
            )));
        }
        let (key, row) = new_key(tenant.id.clone(), name);
        let written = self.store.insert_key(&row).await;
        let info = follow(written, || self.keys.add(row))??;
        Ok(NewKey { key, info })
    }

    /// Oldest first.
    pub fn list_keys(&self, tenant: &Tenant) -> Vec<KeyInfo> {
        let mut keys: Vec<_> = self
            .keys
            .of(&tenant.id)
            .iter()
            .map(|key| key.info())
            .collect();
        keys.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        keys
    }

    pub async fn rename_key(&self, tenant: &Tenant, id: &str, name: &str) -> Result<KeyInfo> {
        let name = checked_name(name)?;
        let _held = self.keys.changes.lock().await;
        let key = self.keys.get(&tenant.id, id)?;
        self.store.rename_key(id, &name).await?;
        let last_used_at = key.last_used();
        self.keys.add(KeyRow {
            name,
            last_used_at,
            ..key.row.clone()
        })
    }

    /// It is refused from the moment that this returns.
    pub async fn delete_key(&self, tenant: &Tenant, id: &str) -> Result<()> {
        let _held = self.keys.changes.lock().await;
        let key = self.keys.get(&tenant.id, id)?;
        if self.keys.of(&tenant.id).len() == 1 {
            return Err(Error::LastKey);
        }
        let deleted = self.store.delete_key(id).await;
        follow(deleted, || {
            self.keys.by_hash.write().remove(&key.row.hash);
        })
    }

    /// Follows changes that were made in the store itself: `soulbox key` works on the data folder.
    pub(crate) async fn sync_keys(&self) -> Result<()> {
        let _held = self.keys.changes.lock().await;
        // Tenants may have been added beside the server too.
        for tenant in self.store.tenants().await? {
            if !self.keys.knows(&tenant.id) {
                self.keys.add_tenant(&tenant);
            }
        }
        self.keys.replace(self.store.keys().await?)
    }

    /// Writes when each key was last used.
    pub(crate) async fn flush_key_use(&self) -> Result<()> {
        let keys: Vec<_> = self.keys.by_hash.read().values().cloned().collect();
        for key in keys {
            let used = key.last_used.load(Ordering::Relaxed);
            if key.last_used_stored.swap(used, Ordering::Relaxed) != used {
                self.store.touch_key(&key.row.id, UnixMillis(used)).await?;
            }
        }
        Ok(())
    }
}

impl KeyRing {
    pub(crate) fn load(tenants: &[TenantRow], keys: Vec<KeyRow>) -> Result<Self> {
        let ring = Self::default();
        for tenant in tenants {
            ring.add_tenant(tenant);
        }
        for key in keys {
            ring.add(key)?;
        }
        Ok(ring)
    }

    pub(crate) fn knows(&self, tenant: &TenantId) -> bool {
        self.tenants.read().iter().any(|t| t.id == *tenant)
    }

    pub(crate) fn by_id(&self, tenant: &TenantId) -> Option<Tenant> {
        let tenants = self.tenants.read();
        let found = tenants.iter().find(|t| t.id == *tenant);
        found.map(|t| Tenant::clone(t))
    }

    fn add_tenant(&self, row: &TenantRow) -> Tenant {
        let tenant = Tenant {
            id: row.id.clone(),
            slug: row.slug.clone(),
            name: row.name.clone(),
            tier: row.tier,
        };
        self.tenants.write().push(Arc::new(tenant.clone()));
        tenant
    }

    fn add(&self, row: KeyRow) -> Result<KeyInfo> {
        let tenant = self
            .tenants
            .read()
            .iter()
            .find(|t| t.id == row.tenant)
            .cloned();
        let used = row.last_used_at.map_or(0, |at| at.0);
        let key = Key {
            tenant: tenant.ok_or(Error::Internal("an API key without a tenant"))?,
            row,
            last_used: AtomicU64::new(used),
            last_used_stored: AtomicU64::new(used),
        };
        let info = key.info();
        self.by_hash
            .write()
            .insert(key.row.hash.clone(), Arc::new(key));
        Ok(info)
    }

    /// Keys that are known already keep what only memory knows of them.
    fn replace(&self, rows: Vec<KeyRow>) -> Result<()> {
        let hashes: HashSet<_> = rows.iter().map(|row| row.hash.clone()).collect();
        self.by_hash.write().retain(|hash, _| hashes.contains(hash));
        for row in rows {
            if !self.by_hash.read().contains_key(&row.hash) {
                self.add(row)?;
            }
        }
        Ok(())
    }

    fn of(&self, tenant: &TenantId) -> Vec<Arc<Key>> {
        self.by_hash
            .read()
            .values()
            .filter(|key| key.row.tenant == *tenant)
            .cloned()
            .collect()
    }

    fn get(&self, tenant: &TenantId, id: &str) -> Result<Arc<Key>> {
        let found = self.of(tenant).into_iter().find(|key| key.row.id == id);
        found.ok_or_else(|| Error::KeyNotFound(id.to_owned()))
    }
}

impl Key {
    fn last_used(&self) -> Option<UnixMillis> {
        Some(self.last_used.load(Ordering::Relaxed))
            .filter(|&at| at > 0)
            .map(UnixMillis)
    }

    fn info(&self) -> KeyInfo {
        KeyInfo {
            id: self.row.id.clone(),
            name: self.row.name.clone(),
            prefix: api_key::PREFIX,
            value_length: self.row.value_length,
            mask_prefix: self.row.mask_prefix.clone(),
            mask_suffix: self.row.mask_suffix.clone(),
            created_at: self.row.created_at,
            last_used_at: self.last_used(),
        }
    }
}

fn new_key(tenant: TenantId, name: String) -> (Secret, KeyRow) {
    let made = api_key::generate();
    let row = KeyRow {
        id: Uuid::now_v7().to_string(),
        tenant,
        name,
        hash: made.hash,
        mask_prefix: made.mask_prefix,
        mask_suffix: made.mask_suffix,
        value_length: made.value_length,
        created_at: UnixMillis::now(),
        last_used_at: None,
    };
    (made.key, row)
}

fn checked_name(name: &str) -> Result<String> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > MAX_NAME_LENGTH || name.contains('\0') {
        let message = format!("the name of an API key has 1 to {MAX_NAME_LENGTH} characters");
        return Err(Error::Invalid(message));
    }
    Ok(name.to_owned())
}
