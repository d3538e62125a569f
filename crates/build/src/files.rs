//! Uploaded build contexts: `files/<tenant>/<hash>`, one archive each.

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use futures_util::StreamExt;
use soulbox_types::TenantId;
use tokio::{fs, io::AsyncWriteExt};

use crate::{FilesError, Upload, durable, garbage::UPLOAD_GRACE, reserve::Reserve};

/// An upload that sends nothing for so long has ended, whatever its client thinks.
const STALL_LIMIT: Duration = Duration::from_mins(2);

/// How much may come in between two looks at the disk.
const LOOK_EVERY: u64 = 16 << 20;

#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    size_limit: u64,
    reserve: Reserve,
    /// Its uploads are small, come with the server, and must not keep it from starting.
    trusted: Option<TenantId>,
}

impl Files {
    /// Blocking. What earlier runs did not finish goes.
    pub(crate) fn open(folder: PathBuf, size_limit: u64, min_free_disk: u64) -> io::Result<Self> {
        durable::make_private(&folder)?;
        for tenant in fs_err::read_dir(&folder)? {
            durable::remove_unfinished(&tenant?.path())?;
        }
        Ok(Self {
            reserve: Reserve::new(folder.clone(), min_free_disk),
            folder,
            size_limit,
            trusted: None,
        })
    }

    pub(crate) fn trusting(self, trusted: Option<TenantId>) -> Self {
        Self { trusted, ..self }
    }

    /// Where the archive is, or would be. `None`: no name that an upload can have.
    pub(crate) fn path(&self, tenant: &TenantId, hash: &str) -> Option<PathBuf> {
        let valid = hash.len() == 64
            && hash
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        valid.then(|| self.folder.join(tenant.as_str()).join(hash))
    }

    pub(crate) async fn has(&self, tenant: &TenantId, hash: &str) -> bool {
        match self.path(tenant, hash) {
            Some(path) => fs::metadata(path).await.is_ok_and(|meta| meta.is_file()),
            None => false,
        }
    }

    pub(crate) async fn receive(
        &self,
        tenant: &TenantId,
        hash: &str,
        upload: Upload,
    ) -> Result<(), FilesError> {
        let path = self
            .path(tenant, hash)
            .ok_or_else(|| FilesError::Io(io::ErrorKind::InvalidInput.into()))?;
        self.check_space(tenant).await?;
        let folder = self.folder.join(tenant.as_str());
        fs::create_dir_all(&folder).await.map_err(FilesError::Io)?;
        let new = Unfinished(folder.join(format!("{hash}-{}.new", uuid::Uuid::new_v4())));
        self.write(tenant, &new.0, upload).await?;
        fs::rename(&new.0, &path).await.map_err(FilesError::Io)?;
        durable::sync_folder(folder).await.map_err(FilesError::Io)
    }

    async fn check_space(&self, tenant: &TenantId) -> Result<(), FilesError> {
        if self.trusted.as_ref() == Some(tenant) {
            return Ok(());
        }
        self.reserve.check(LOOK_EVERY).await
    }

    async fn write(
        &self,
        tenant: &TenantId,
        path: &Path,
        mut upload: Upload,
    ) -> Result<(), FilesError> {
        let file = fs::File::create_new(path).await.map_err(FilesError::Io)?;
        let mut file = tokio::io::BufWriter::with_capacity(256 << 10, file);
        let (mut size, mut look_at) = (0_u64, LOOK_EVERY);
        loop {
            let next = tokio::time::timeout(STALL_LIMIT, upload.next())
                .await
                .map_err(|_| FilesError::Cut(io::ErrorKind::TimedOut.into()))?;
            let Some(chunk) = next else { break };
            let chunk = chunk.map_err(FilesError::Cut)?;
            size = size.saturating_add(chunk.len() as u64);
            if size > self.size_limit {
                return Err(FilesError::TooLarge {
                    limit: self.size_limit,
                });
            }
            if size > look_at {
                // What is on its way to the disk is not counted there yet.
                file.flush().await.map_err(FilesError::Io)?;
                self.check_space(tenant).await?;
                look_at = size.saturating_add(LOOK_EVERY);
            }
            file.write_all(&chunk).await.map_err(FilesError::Io)?;
        }
        file.flush().await.map_err(FilesError::Io)?;
        file.get_ref().sync_all().await.map_err(FilesError::Io)
    }

    /// What [`Self::collect`] would remove if room is wanted. Blocking.
    pub(crate) fn unused(
        &self,
        lasting: Option<&TenantId>,
        held: &HashSet<PathBuf>,
    ) -> io::Result<Vec<PathBuf>> {
        let now = SystemTime::now();
        let mut all = Vec::new();
        for tenant in fs_err::read_dir(&self.folder)? {
            let tenant = tenant?.path();
            if lasting.is_some_and(|lasting| tenant.ends_with(lasting.as_str())) {
                continue;
            }
            for entry in fs_err::read_dir(&tenant)? {
                let entry = entry?;
                let used = entry.metadata()?.modified()?;
                let old = now
                    .duration_since(used)
                    .is_ok_and(|unused| unused > UPLOAD_GRACE);
                if old && !held.contains(&entry.path()) {
                    all.push(entry.path());
                }
            }
        }
        Ok(all)
    }

    /// Removes what was not used for `age`. Blocking.
    pub(crate) fn collect(
        &self,
        age: Duration,
        lasting: Option<&TenantId>,
        held: &HashSet<PathBuf>,
    ) -> io::Result<()> {
        let now = SystemTime::now();
        for tenant in fs_err::read_dir(&self.folder)? {
            let tenant = tenant?.path();
            if lasting.is_some_and(|lasting| tenant.ends_with(lasting.as_str())) {
                continue;
            }
            for entry in fs_err::read_dir(&tenant)? {
                let entry = entry?;
                let path = entry.path();
                let used = entry.metadata()?.modified()?;
                let old = now.duration_since(used).is_ok_and(|unused| unused > age);
                if old && !held.contains(&path) {
                    fs_err::remove_file(path)?;
                }
            }
            // Only an empty one can be removed.
            let _still_used = std::fs::remove_dir(&tenant);
        }
        Ok(())
    }
}

/// A file that goes with this, unless it got another name.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _renamed = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::stream;

    use super::*;

    const HASH: &str = "aaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbccccccccccccccccdddddddddddddddd";

    fn tenant() -> TenantId {
        "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
    }

    fn upload(parts: Vec<io::Result<&'static str>>) -> Upload {
        stream::iter(parts)
            .map(|part| part.map(|text| Bytes::from_static(text.as_bytes())))
            .boxed()
    }

    fn names(folder: &Path) -> Vec<String> {
        fs_err::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[tokio::test]
    async fn an_upload_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path().join("files"), 10, 0).unwrap();
        let tenant = tenant();
        assert!(!files.has(&tenant, HASH).await);
        let cut = upload(vec![Ok("abc"), Err(io::ErrorKind::ConnectionReset.into())]);
        let error = files.receive(&tenant, HASH, cut).await.unwrap_err();
        assert!(matches!(error, FilesError::Cut(_)));
        let large = upload(vec![Ok("0123456789"), Ok("0")]);
        let error = files.receive(&tenant, HASH, large).await.unwrap_err();
        assert!(matches!(error, FilesError::TooLarge { limit: 10 }));
        assert!(names(&folder.path().join("files").join(tenant.as_str())).is_empty());

        files
            .receive(&tenant, HASH, upload(vec![Ok("ab"), Ok("c")]))
            .await
            .unwrap();
        files
            .receive(&tenant, HASH, upload(vec![Ok("again")]))
            .await
            .unwrap();
        let path = files.path(&tenant, HASH).unwrap();
        assert_eq!(fs_err::read_to_string(path).unwrap(), "again");
        assert!(files.has(&tenant, HASH).await);
    }

    #[tokio::test]
    async fn a_disk_that_is_nearly_full_takes_no_uploads() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path().to_owned(), 10, u64::MAX).unwrap();
        let error = files
            .receive(&tenant(), HASH, upload(vec![Ok("x")]))
            .await
            .unwrap_err();
        assert!(matches!(error, FilesError::NoSpace { .. }), "{error}");
        assert!(error.to_string().contains("kept in reserve"), "{error}");
        assert!(!files.has(&tenant(), HASH).await);
        assert!(names(folder.path()).is_empty());

        let files = files.trusting(Some(tenant()));
        let own = upload(vec![Ok("x")]);
        files.receive(&tenant(), HASH, own).await.unwrap();
        assert!(files.has(&tenant(), HASH).await, "the server starts anyway");
    }

    #[tokio::test]
    async fn names_that_lead_elsewhere_are_not_names() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path().to_owned(), 10, 0).unwrap();
        for bad in [
            "",
            "..",
            "../../etc/passwd",
            &"A".repeat(64),
            &"/".repeat(64),
        ] {
            assert!(files.path(&tenant(), bad).is_none(), "{bad}");
            assert!(files.receive(&tenant(), bad, upload(vec![])).await.is_err());
        }
    }

    #[tokio::test]
    async fn what_is_old_and_not_in_use_goes() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path().to_owned(), 10, 0).unwrap();
        let tenant = tenant();
        files
            .receive(&tenant, HASH, upload(vec![Ok("x")]))
            .await
            .unwrap();
        let path = files.path(&tenant, HASH).unwrap();
        files
            .collect(Duration::from_mins(1), None, &HashSet::new())
            .unwrap();
        files
            .collect(Duration::ZERO, None, &[path.clone()].into())
            .unwrap();
        assert!(path.exists());
        files
            .collect(Duration::ZERO, Some(&tenant), &HashSet::new())
            .unwrap();
        assert!(path.is_file(), "what comes with the server stays");
        files
            .collect(Duration::ZERO, None, &HashSet::new())
            .unwrap();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn unfinished_uploads_go_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join(tenant().as_str());
        fs_err::create_dir(&place).unwrap();
        fs_err::write(place.join("x.new"), "").unwrap();
        Files::open(folder.path().to_owned(), 10, 0).unwrap();
        assert!(names(&place).is_empty());
    }
}
