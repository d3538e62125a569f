//! The data folder's disk: a tmpfs of the test's own that really runs full, or turns read-only.

use std::path::Path;

use rustix::mount::{MountFlags, mount, mount_change, mount_remount};

pub(crate) struct Disk {
    folder: tempfile::TempDir,
    /// Whether it can fail: mounting needs root.
    mounted: bool,
}

impl Disk {
    /// For this thread and those that it starts.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mounted = rustix::process::geteuid().is_root();
        if mounted {
            soulbox_sys::clone::new_mount_namespace().unwrap();
            let private = rustix::mount::MountPropagationFlags::REC
                | rustix::mount::MountPropagationFlags::PRIVATE;
            mount_change("/", private).unwrap();
            let options = c"size=256m,nr_inodes=100000";
            mount(
                "tmpfs",
                folder.path(),
                "tmpfs",
                MountFlags::empty(),
                Some(options),
            )
            .unwrap();
        } else {
            println!("skipped: full and read-only disks, for which this needs root");
        }
        Self { folder, mounted }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Files can be removed, and none can be made.
    pub(crate) fn fill(&self) {
        if self.mounted {
            let found = rustix::fs::statvfs(self.path()).unwrap();
            let used = found.f_files - found.f_ffree;
            // Another thread may have made a file since.
            let _filled_or_not = self.remount(MountFlags::empty(), &format!("nr_inodes={used}"));
        }
    }

    /// Nothing can be changed, as after an error of the disk below.
    pub(crate) fn freeze(&self) {
        if self.mounted {
            // A file that is open for writing just now forbids it.
            let _frozen_or_not = self.remount(MountFlags::RDONLY, "");
        }
    }

    pub(crate) fn mend(&self) {
        if self.mounted {
            self.remount(MountFlags::empty(), "nr_inodes=100000")
                .unwrap();
        }
    }

    fn remount(&self, flags: MountFlags, options: &str) -> rustix::io::Result<()> {
        mount_remount(self.path(), flags, options)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            rustix::mount::unmount(self.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
        }
    }
}
