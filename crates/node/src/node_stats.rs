//! For operators: what the node has of its machine, and whether it can make sandboxes.

use soulbox_runtime::{Error, Result};

use crate::{Level, LocalNode};

/// What the metrics page tells of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Of the data folder; `None` when the kernel does not tell.
    pub disk: Option<DiskStats>,
    /// Of the machine, at the last look of admission control.
    pub levels: Vec<Level>,
    /// Sandboxes that were killed and that the kernel does not end.
    pub stuck_ends: u64,
}

/// The disk of the data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskStats {
    pub total: u64,
    pub free: u64,
    /// Below it nothing is made.
    pub reserve: u64,
    /// Files that can still be made; `None` where the file system has no fixed number of them.
    pub free_files: Option<u64>,
}

impl LocalNode {
    /// Looks at the disk, which takes microseconds; the rest is from memory.
    pub fn node_stats(&self) -> NodeStats {
        NodeStats {
            disk: self.disk_stats().ok(),
            levels: self.admission().levels(),
            stuck_ends: self.stuck_ends().count(),
        }
    }

    /// Whether sandboxes can be made, as far as that is not a matter of how many there are: a full
    /// machine does its work.
    pub fn check_ready(&self) -> Vec<(&'static str, Result<()>)> {
        let open = if self.admission().is_closed() {
            Err(Error::NoCapacity {
                what: "the server is stopping".to_owned(),
                retry_after: std::time::Duration::from_secs(5),
            })
        } else {
            Ok(())
        };
        vec![
            ("admission", open),
            ("kernel", self.stuck_ends().check()),
            ("disk", self.check_disk()),
        ]
    }
}
