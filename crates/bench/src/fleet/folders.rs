//! What the folders of a server show about its sandboxes.

use std::path::{Path, PathBuf};

const RUNNING: &str = "running.json";
const WARM: &str = "warm.json";

/// Those that wait for a user.
pub(super) async fn waiting(data: &Path) -> usize {
    count(data, |folder| folder.join(WARM).exists()).await
}

/// Those that have processes.
pub(super) async fn running(data: &Path) -> usize {
    count(data, |folder| folder.join(RUNNING).exists()).await
}

/// Those of users.
pub(crate) async fn living(data: &Path) -> usize {
    count(data, |folder| {
        folder.join(RUNNING).exists() && !folder.join(WARM).exists()
    })
    .await
}

async fn count(data: &Path, counts: fn(PathBuf) -> bool) -> usize {
    let folder = data.join("sandboxes");
    let counted = tokio::task::spawn_blocking(move || {
        let folders = std::fs::read_dir(folder).into_iter().flatten();
        folders
            .filter_map(Result::ok)
            .filter(|folder| counts(folder.path()))
            .count()
    });
    counted.await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn folders_tell_who_runs_and_who_waits() {
        let data = tempfile::tempdir().unwrap();
        for (name, files) in [
            ("i1", vec![RUNNING, WARM]),
            ("i2", vec![RUNNING]),
            ("i3", vec![RUNNING, WARM]),
            ("i4", vec!["spec.json"]),
        ] {
            let folder = data.path().join("sandboxes").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            for file in files {
                std::fs::write(folder.join(file), "{}").unwrap();
            }
        }
        assert_eq!(waiting(data.path()).await, 2);
        assert_eq!(running(data.path()).await, 3);
        assert_eq!(living(data.path()).await, 1);
        assert_eq!(living(Path::new("/no/such/folder")).await, 0);
    }
}
