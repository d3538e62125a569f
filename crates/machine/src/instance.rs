//! What marks everything that this server makes on the machine.

use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};
use soulbox_net::{Ipv4Net, NetConfig};
use soulbox_runtime::{Error, Result};
use soulbox_types::id::fill_random;

/// One server's identity on this machine, made at its first start and kept in the data folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Four hex digits, part of every interface, cgroup and table name.
    pub tag: String,
    /// Addresses of the sandboxes.
    pub range: String,
    /// Number of that range. Nothing depends on it; versions before 0.2 read it.
    #[serde(default)]
    pub block: u32,
    /// No sandbox was ever given one of its addresses.
    #[serde(skip)]
    pub(crate) fresh: bool,
}

impl Instance {
    pub(crate) fn load_or_create(data_dir: &Path, wanted: Option<Ipv4Net>) -> Result<Self> {
        let path = data_dir.join("instance.json");
        let io = |source| Error::io("could not keep the instance's identity", source);
        // One that cannot be read is not absent: another identity would lose every sandbox.
        let text = match fs::read(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(io(error)),
        };
        if let Some(text) = text {
            let mut known: Self =
                serde_json::from_slice(&text).map_err(|error| damaged(&path, &error))?;
            if let Some(range) = wanted
                && range.to_string() != known.range
            {
                known.range = range.to_string();
                write(&path, &known).map_err(io)?;
            }
            return Ok(known);
        }
        let mut random = [0_u8; 2];
        fill_random(&mut random);
        let tag = format!("{:02x}{:02x}", random[0], random[1]);
        let mut instance = Self {
            tag,
            range: String::new(),
            block: 0,
            fresh: true,
        };
        instance.pick_range()?;
        if let Some(range) = wanted {
            instance.range = range.to_string();
        }
        write(&path, &instance).map_err(io)?;
        Ok(instance)
    }

    /// Takes another range, because the one it had is in use. Only while no sandbox has an address.
    pub(crate) fn pick_another_range(&mut self, data_dir: &Path) -> Result<()> {
        self.pick_range()?;
        write(&data_dir.join("instance.json"), self)
            .map_err(|source| Error::io("could not keep the instance's identity", source))
    }

    fn pick_range(&mut self) -> Result<()> {
        let (range, block) = NetConfig::pick_range(&self.tag)
            .map_err(|e| Error::io("could not pick a network range", std::io::Error::other(e)))?;
        self.range = range.to_string();
        self.block = block.into();
        Ok(())
    }

    pub(crate) fn cgroup_parent(&self) -> String {
        format!("soulbox-{}", self.tag)
    }
}

fn damaged(path: &Path, error: &serde_json::Error) -> Error {
    Error::Damaged {
        what: path.display().to_string(),
        message: format!(
            "{error}. Restore it from a backup; or, when no sandbox of this server runs any more \
             (after a restart of the machine for example), remove it: the next start makes another"
        ),
    }
}

fn write(path: &Path, instance: &Instance) -> std::io::Result<()> {
    let text = serde_json::to_vec_pretty(instance).map_err(std::io::Error::other)?;
    soulbox_durable::write(path, 0o600, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_that_cannot_be_read_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("instance.json");
        for damaged in ["", "{"] {
            fs::write(&path, damaged).unwrap();
            let refused = Instance::load_or_create(folder.path(), None).unwrap_err();
            assert!(refused.to_string().contains("from a backup"), "{refused}");
            assert_eq!(fs::read_to_string(&path).unwrap(), damaged);
        }
        // A folder stands for a disk that does not give the file.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(Instance::load_or_create(folder.path(), None).is_err());
        assert!(path.is_dir());
    }

    #[test]
    fn the_identity_of_a_folder_is_kept_and_read_without_what_later_versions_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{"tag":"00aa","range":"10.213.0.0/16"}"#;
        fs::write(folder.path().join("instance.json"), text).unwrap();
        let known = Instance::load_or_create(folder.path(), None).unwrap();
        assert_eq!((known.tag.as_str(), known.fresh), ("00aa", false));
        let wanted = "10.99.0.0/16".parse().unwrap();
        Instance::load_or_create(folder.path(), Some(wanted)).unwrap();
        let again = Instance::load_or_create(folder.path(), None).unwrap();
        assert_eq!(again.range, "10.99.0.0/16");
    }
}
