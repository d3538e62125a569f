//! The operator's program that adds and removes TXT records.

use std::{path::PathBuf, process::Stdio, time::Duration};

use tokio::{io::AsyncReadExt, process::Command, time::timeout};

use crate::Error;

/// It should wait until all name servers of the zone have the record.
const LIMIT: Duration = Duration::from_mins(3);
const SHOWN: u64 = 2048;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub program: PathBuf,
}

impl Hook {
    /// `PROGRAM present|cleanup NAME VALUE`.
    pub(crate) async fn call(
        &self,
        action: &'static str,
        name: &str,
        value: &str,
    ) -> Result<(), Error> {
        let failed = |problem: String| Error::Hook {
            program: self.program.clone(),
            action,
            problem,
        };
        let mut child = Command::new(&self.program)
            .args([action, name, value])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let mut said = Vec::new();
        let stderr = child.stderr.take();
        let ended = async {
            if let Some(mut stderr) = stderr {
                (&mut stderr).take(SHOWN).read_to_end(&mut said).await.ok();
                // A full pipe would stop it.
                tokio::io::copy(&mut stderr, &mut tokio::io::sink())
                    .await
                    .ok();
            }
            child.wait().await
        };
        let status = timeout(LIMIT, ended)
            .await
            .map_err(|_| failed(format!("it did not end within {} s", LIMIT.as_secs())))?
            .map_err(|error| failed(error.to_string()))?;
        if status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said);
        Err(failed(match said.trim() {
            "" => status.to_string(),
            said => format!("{status}: {said}"),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hook_gets_its_words_and_its_complaint_is_passed_on() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hook");
        let text = "#!/bin/sh\necho \"$@\" > \"$0.words\"\n[ \"$1\" = present ] || { echo no such zone >&2; exit 3; }\n";
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let hook = Hook { program };
        hook.call("present", "_acme-challenge.a.test", "value")
            .await
            .unwrap();
        let words = std::fs::read_to_string(folder.path().join("hook.words")).unwrap();
        assert_eq!(words, "present _acme-challenge.a.test value\n");
        let failed = hook
            .call("cleanup", "a", "b")
            .await
            .unwrap_err()
            .to_string();
        assert!(
            failed.contains("cleanup failed") && failed.contains("no such zone"),
            "{failed}"
        );
        let absent = Hook {
            program: folder.path().join("absent"),
        };
        assert!(absent.call("present", "a", "b").await.is_err());
    }
}
