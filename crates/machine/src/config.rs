use std::path::PathBuf;

use soulbox_net::Ipv4Net;

#[derive(Debug, Clone)]
pub struct MachineConfig {
    /// The server's data folder. Used here: `disks/`, `layers/`, `staging/` and `instance.json`.
    pub data_dir: PathBuf,
    /// Where the node keeps one folder per sandbox. The disk image is in it.
    pub sandboxes_dir: PathBuf,
    /// Volumes, each mounted at `<id>/mnt`.
    pub volumes_dir: PathBuf,
    pub programs: soulbox_guest_programs::Programs,
    /// `None`: the first free one of a list.
    pub network_range: Option<Ipv4Net>,
    /// Private ranges that the operator opened for all sandboxes.
    pub open_ranges: Vec<Ipv4Net>,
    /// Network slots kept ready.
    pub pool: usize,
    /// Ceiling of sandboxes on this machine.
    pub max_sandboxes: u32,
    /// Sizes of which an empty disk is made ahead, in MiB.
    pub disk_sizes: Vec<u32>,
}
