use std::{path::PathBuf, sync::Arc};

use soulbox_net::Ipv4Net;
use soulbox_template::Templates;

#[derive(Debug, Clone)]
pub struct JailConfig {
    /// The server's data folder; the jail uses `bin/`, `disks/`, `layers/` and `instance.json`.
    pub data_dir: PathBuf,
    /// Where the node keeps one folder per sandbox; the jail puts the disk image there.
    pub sandboxes_dir: PathBuf,
    /// Volumes, each mounted at `<id>/mnt`.
    pub volumes_dir: PathBuf,
    /// What sandboxes start from.
    pub templates: Arc<Templates>,
    pub programs: soulbox_guest_programs::Programs,
    /// `None`: the first free one of a list.
    pub network_range: Option<Ipv4Net>,
    /// Private ranges that the operator opened for all sandboxes.
    pub open_ranges: Vec<Ipv4Net>,
    /// Network slots kept ready.
    pub pool: usize,
    /// Ceiling of sandboxes on this machine.
    pub max_sandboxes: u32,
}
