//! Volumes: whose they are, who may touch their files, and which sandboxes have them.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use soulbox_store::{Inserted, VolumeRow};
use soulbox_types::{Chain, SandboxId, SandboxSpec, Secret, UnixMillis, VolumeMount};
use soulbox_volume::{Content, Volumes};
use uuid::Uuid;

use crate::{Control, Error, Result, Tenant, request::MountRequest};

const MAX_VOLUMES: usize = 1000;
const MAX_NAME: usize = 128;
const MAX_MOUNTS: usize = 32;
const MAX_PATH: usize = 1024;
/// What the sandbox's own system needs; a volume there, or above, would take it away.
const RESERVED: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeInfo {
    /// A UUID.
    pub id: String,
    pub name: String,
    /// What clients show to touch its files.
    pub token: Secret,
}

/// Which volumes new sandboxes are about to have, and which are going away.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    volumes: Mutex<HashMap<String, Use>>,
}

#[derive(Debug)]
enum Use {
    Claimed(usize),
    Deleting,
}

/// Keeps volumes from being deleted while a sandbox with them is being made.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    volumes: Vec<String>,
}

impl Control {
    pub async fn create_volume(
        self: &Arc<Self>,
        tenant: &Tenant,
        name: &str,
    ) -> Result<VolumeInfo> {
        let volumes = self.volumes()?;
        if !is_name(name) {
            return Err(Error::Invalid(format!(
                "the name of a volume has 1 to {MAX_NAME} characters of a-z, A-Z, 0-9, - and _"
            )));
        }
        let existing = self.store.volumes(&tenant.id).await?;
        if existing.iter().any(|volume| volume.name == name) {
            return Err(Error::VolumeExists(name.to_owned()));
        }
        if existing.len() >= MAX_VOLUMES {
            return Err(Error::TooManyVolumes(MAX_VOLUMES));
        }
        let row = VolumeRow {
            id: Uuid::new_v4().to_string(),
            tenant: tenant.id.clone(),
            name: name.to_owned(),
            limit_mib: self.config.volume_limit_mib,
            created_at: UnixMillis::now(),
        };
        let control = Arc::clone(self);
        self.finish(async move {
            let (id, limit) = (row.id.clone(), row.limit_mib);
            let made = Arc::clone(&volumes);
            blocking(move || made.create(&id, limit)).await?;
            let inserted = control.store.insert_volume(&row, MAX_VOLUMES).await?;
            if inserted != Inserted::Yes {
                let id = row.id.clone();
                blocking(move || volumes.delete(&id)).await?;
                return Err(match inserted {
                    Inserted::Full => Error::TooManyVolumes(MAX_VOLUMES),
                    _ => Error::VolumeExists(row.name),
                });
            }
            tracing::info!(volume_id = row.id, "volume made");
            Ok(control.volume_info(row))
        })
        .await
    }

    /// Oldest first.
    pub async fn list_volumes(&self, tenant: &Tenant) -> Result<Vec<VolumeInfo>> {
        self.volumes()?;
        let rows = self.store.volumes(&tenant.id).await?;
        Ok(rows.into_iter().map(|row| self.volume_info(row)).collect())
    }

    pub async fn volume(&self, tenant: &Tenant, id: &str) -> Result<VolumeInfo> {
        self.volumes()?;
        let row = self.volume_row(tenant, id).await?;
        Ok(self.volume_info(row))
    }

    /// Refused while a sandbox has it, running or paused.
    pub async fn delete_volume(self: &Arc<Self>, tenant: &Tenant, id: &str) -> Result<()> {
        let volumes = self.volumes()?;
        let row = self.volume_row(tenant, id).await?;
        let control = Arc::clone(self);
        self.finish(async move {
            if !control.claims.begin_delete(&row.id) {
                return Err(Error::VolumeInUse { by: None });
            }
            let deleted = control.delete_claimed(volumes, &row.id).await;
            control.claims.end_delete(&row.id);
            deleted
        })
        .await
    }

    async fn delete_claimed(&self, volumes: Arc<Volumes>, id: &str) -> Result<()> {
        if let Some(by) = self.user_of(id) {
            return Err(Error::VolumeInUse { by: Some(by) });
        }
        let owned = id.to_owned();
        // The files first: a row without files can be deleted again, files without a row cannot.
        blocking(move || volumes.delete(&owned)).await?;
        self.store.delete_volume(id).await?;
        tracing::info!(volume_id = id, "volume deleted");
        Ok(())
    }

    /// The files of a volume, for whoever shows its token.
    pub async fn volume_content(&self, id: &str, token: &str) -> Result<Arc<Content>> {
        let volumes = self.volumes()?;
        if !self.tokens.volume_token(id).matches(token) {
            return Err(Error::VolumeToken);
        }
        if self.store.volume(id).await?.is_none() {
            return Err(Error::VolumeNotFound(id.to_owned()));
        }
        let id = id.to_owned();
        blocking(move || volumes.content(&id)).await
    }

    /// For copies of a sandbox: its volumes stay while they are being made, even if it ends.
    pub(crate) fn claim_mounted(&self, mounts: &[VolumeMount]) -> Result<Claim> {
        let mut claim = Claim {
            claims: Arc::clone(&self.claims),
            volumes: Vec::new(),
        };
        for mount in mounts {
            if !claim.add(&mount.volume) {
                return Err(Error::VolumeNotFound(mount.volume.clone()));
            }
        }
        Ok(claim)
    }

    /// Checks the request, tells all that is wrong with it at once, and makes the volumes ready.
    pub(crate) async fn resolve_mounts(
        &self,
        tenant: &Tenant,
        requests: &[MountRequest],
    ) -> Result<(Vec<VolumeMount>, Claim)> {
        let mut claim = Claim {
            claims: Arc::clone(&self.claims),
            volumes: Vec::new(),
        };
        if requests.is_empty() {
            return Ok((Vec::new(), claim));
        }
        let Some(volumes) = self.config.volumes.clone() else {
            let message = "invalid mounts: volumes are not available on this server";
            return Err(Error::Invalid(message.to_owned()));
        };
        let known = self.store.volumes(&tenant.id).await?;
        let mut mounts: Vec<VolumeMount> = Vec::new();
        let mut problems = Vec::new();
        if requests.len() > MAX_MOUNTS {
            problems.push(format!("at most {MAX_MOUNTS} volumes can be mounted"));
        }
        for (index, request) in requests.iter().take(MAX_MOUNTS).enumerate() {
            let taken = requests[..index]
                .iter()
                .any(|other| other.path == request.path);
            let mut problem = |reason: String| {
                problems.push(format!("volume mount #{index}: {reason}"));
            };
            if let Err(reason) = check_path(&request.path) {
                problem(reason.to_owned());
            } else if taken {
                problem(format!("path '{}' is used more than once", request.path));
            }
            match known.iter().find(|volume| volume.name == request.name) {
                Some(volume) if claim.add(&volume.id) => mounts.push(VolumeMount {
                    volume: volume.id.clone(),
                    name: volume.name.clone(),
                    path: request.path.clone(),
                }),
                _ => problem(format!("volume '{}' not found", request.name)),
            }
        }
        if !problems.is_empty() {
            let message = format!("invalid mounts: {}", problems.join("; "));
            return Err(Error::Invalid(message));
        }
        let ids = claim.volumes.clone();
        blocking(move || ids.iter().try_for_each(|id| volumes.mount(id))).await?;
        Ok((mounts, claim))
    }

    /// Volumes of sandboxes that are here already, so that those can be woken.
    pub(crate) async fn mount_used_volumes(&self) {
        for status in self.node.list() {
            self.mount_volumes_of(&status.spec).await;
        }
    }

    pub(crate) async fn mount_volumes_of(&self, spec: &SandboxSpec) {
        let Some(volumes) = self.config.volumes.clone() else {
            return;
        };
        for id in spec.volumes.iter().map(|mount| mount.volume.clone()) {
            let (volumes, owned) = (Arc::clone(&volumes), id.clone());
            if let Err(error) = blocking(move || volumes.mount(&owned)).await {
                tracing::error!(volume_id = id, error = %Chain(&error), "could not mount a volume in use");
            }
        }
    }

    fn volumes(&self) -> Result<Arc<Volumes>> {
        self.config.volumes.clone().ok_or(Error::NoVolumes)
    }

    async fn volume_row(&self, tenant: &Tenant, id: &str) -> Result<VolumeRow> {
        if Uuid::try_parse(id).is_err() {
            return Err(Error::Invalid("Invalid volume ID".to_owned()));
        }
        let row = self.store.volume(&id.to_ascii_lowercase()).await?;
        row.filter(|row| row.tenant == tenant.id)
            .ok_or_else(|| Error::VolumeNotFound(id.to_owned()))
    }

    fn volume_info(&self, row: VolumeRow) -> VolumeInfo {
        VolumeInfo {
            token: self.tokens.volume_token(&row.id),
            id: row.id,
            name: row.name,
        }
    }

    fn user_of(&self, volume: &str) -> Option<SandboxId> {
        let has = |mounts: &[VolumeMount]| mounts.iter().any(|mount| mount.volume == volume);
        self.specs_in_use()
            .find(|spec| has(&spec.volumes))
            .map(|spec| spec.id.clone())
    }
}

impl Claims {
    fn begin_delete(&self, id: &str) -> bool {
        let mut volumes = self.volumes.lock();
        if volumes.contains_key(id) {
            return false;
        }
        volumes.insert(id.to_owned(), Use::Deleting);
        true
    }

    fn end_delete(&self, id: &str) {
        self.volumes.lock().remove(id);
    }
}

impl Claim {
    /// `false` for one that is going away.
    fn add(&mut self, id: &str) -> bool {
        let mut volumes = self.claims.volumes.lock();
        match volumes.entry(id.to_owned()).or_insert(Use::Claimed(0)) {
            Use::Deleting => return false,
            Use::Claimed(count) => *count += 1,
        }
        self.volumes.push(id.to_owned());
        true
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut volumes = self.claims.volumes.lock();
        for id in &self.volumes {
            if let Some(Use::Claimed(count)) = volumes.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    volumes.remove(id);
                }
            }
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> soulbox_volume::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Error::Internal("the work with a volume was interrupted")),
    }
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

fn check_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("path cannot be empty");
    }
    let Some(relative) = path.strip_prefix('/') else {
        return Err("path must be absolute");
    };
    if relative.is_empty() {
        return Err("path cannot be the root directory");
    }
    if relative
        .split('/')
        .any(|part| matches!(part, "" | "." | ".."))
    {
        return Err("path must not contain any '.' or '..' components, '//' or a slash at its end");
    }
    if path.len() > MAX_PATH || path.contains(char::is_control) {
        return Err("path is too long or has control characters");
    }
    let reserved = RESERVED.iter().any(|top| {
        path.strip_prefix(top)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    if reserved {
        return Err("path belongs to the system of the sandbox");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_path_is_absolute_clean_and_not_of_the_system() {
        for good in ["/data", "/mnt/my data", "/process", "/home/user/.cache"] {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
        for bad in [
            "", "/", "data", "/a/", "/a//b", "/a/./b", "/a/../b", "/proc", "/dev/x", "/a\nb",
        ] {
            assert!(check_path(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_claimed_volume_is_not_deleted_and_a_going_one_not_claimed() {
        let claims = Arc::new(Claims::default());
        let claim = || Claim {
            claims: Arc::clone(&claims),
            volumes: Vec::new(),
        };
        let (mut first, mut second) = (claim(), claim());
        assert!(first.add("v") && second.add("v"));
        drop(first);
        assert!(!claims.begin_delete("v"));
        drop(second);
        assert!(claims.begin_delete("v"));
        assert!(!claim().add("v"));
        claims.end_delete("v");
        assert!(claim().add("v"));
    }
}
