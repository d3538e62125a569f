//! What marks everything that this server makes on the machine.

use std::path::Path;

use fs_err as fs;
use serde::{Deserialize, Serialize};
use soulbox_net::{Ipv4Net, NetConfig};
use soulbox_runtime::{Error, Result};
use soulbox_types::id::fill_random;

/// Host ids from here on belong to sandboxes. Above every range that distributions hand out
/// (system users, subuids, systemd's containers); they never reach a disk.
const FIRST_HOST_ID: u32 = 0x8000_0000;
/// Network slots, and so id ranges, of one server.
pub(crate) const SLOTS: u32 = 4096;
const IDS_PER_SANDBOX: u32 = 65_536;

/// One server's identity on this machine, made at its first start and kept in the data folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Four hex digits, part of every interface, cgroup and table name.
    pub tag: String,
    /// Addresses of the sandboxes.
    pub range: String,
    /// Which of the blocks of host ids is ours.
    pub block: u32,
    /// No sandbox was ever given one of its addresses.
    #[serde(skip)]
    pub(crate) fresh: bool,
}

impl Instance {
    pub(crate) fn load_or_create(data_dir: &Path, wanted: Option<Ipv4Net>) -> Result<Self> {
        let path = data_dir.join("instance.json");
        let io = |source| Error::io("could not keep the instance's identity", source);
        if path.exists() {
            let text = fs::read(&path).map_err(io)?;
            let mut known: Self =
                serde_json::from_slice(&text).map_err(|e| io(std::io::Error::other(e)))?;
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

    /// First host id of the sandbox in a network slot.
    pub(crate) fn id_base(&self, slot: u32) -> u32 {
        FIRST_HOST_ID + (self.block * SLOTS + slot) * IDS_PER_SANDBOX
    }

    pub(crate) fn cgroup_parent(&self) -> String {
        format!("soulbox-{}", self.tag)
    }
}

fn write(path: &Path, instance: &Instance) -> std::io::Result<()> {
    let text = serde_json::to_vec_pretty(instance).map_err(std::io::Error::other)?;
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::File::open(&new)?.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_ranges_of_different_servers_and_slots_do_not_overlap() {
        let server = |block| Instance {
            tag: "0000".into(),
            range: String::new(),
            block,
            fresh: false,
        };
        let mut bases: Vec<u32> = (0..7)
            .flat_map(|block| [0, 1, SLOTS - 1].map(|slot| server(block).id_base(slot)))
            .collect();
        bases.sort_unstable();
        assert!(
            bases
                .windows(2)
                .all(|pair| pair[1] - pair[0] >= IDS_PER_SANDBOX)
        );
        assert!(bases.last().unwrap().checked_add(IDS_PER_SANDBOX).is_some());
    }
}
