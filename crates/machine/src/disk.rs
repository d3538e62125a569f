//! Empty ext4 images, and quick copies of them.
//!
//! Formatting takes some tens of milliseconds, copying an empty image about one: the few blocks
//! that hold data are copied, the rest stays a hole. One blank image per size is kept.

use std::{
    ffi::OsStr,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use fs_err as fs;
use soulbox_runtime::{Error, Result};
use soulbox_sparse::{copy, data_ranges, new_image};
use soulbox_sys::loopdev;

/// The most overlays that a template may have; each finds its directories in the image.
pub const OVERLAYS: usize = 8;
const BLOCK: usize = 4096;
const RELEASE_LIMIT: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct Disks {
    folder: PathBuf,
    /// Serialises the making of blanks.
    making: parking_lot::Mutex<()>,
    /// See [`attaching_writes_out`].
    written_out: bool,
}

impl Disks {
    pub(crate) fn open(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).map_err(|e| Error::io("could not make the disks folder", e))?;
        Ok(Self {
            folder,
            making: parking_lot::Mutex::new(()),
            written_out: attaching_writes_out(),
        })
    }

    /// A fresh disk of `mib` MiB at `target`. Blocking.
    pub(crate) fn create(&self, mib: u32, target: &Path) -> Result<()> {
        let blank = self.blank(mib)?;
        copy(&blank, target)
            .and_then(|()| {
                if self.written_out {
                    sync(target)
                } else {
                    Ok(())
                }
            })
            .map_err(|e| Error::io(format!("could not make the disk {}", target.display()), e))
    }

    /// Makes sure that the blank of a size exists. Blocking.
    pub(crate) fn blank(&self, mib: u32) -> Result<PathBuf> {
        let path = self.folder.join(format!("blank2-{mib}.ext4"));
        if path.exists() {
            return Ok(path);
        }
        let _one_at_a_time = self.making.lock();
        if path.exists() {
            return Ok(path);
        }
        let failed = |e| Error::io(format!("could not format a disk of {mib} MiB"), e);
        let raw = self.folder.join(format!("blank-{mib}.raw"));
        let new = self.folder.join(format!("blank-{mib}.new"));
        format(&raw, mib).map_err(failed)?;
        dig_holes(&raw, &new).map_err(failed)?;
        fs::remove_file(&raw).map_err(failed)?;
        fs::rename(&new, &path).map_err(failed)?;
        Ok(path)
    }
}

fn mkfs() -> io::Result<PathBuf> {
    soulbox_sys::find_program("mkfs.ext4").ok_or_else(|| {
        let text = "mkfs.ext4 is not installed (package e2fsprogs)";
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// `mkfs.ext4` fills the file system from a directory, so that the places for the overlays are
/// there without ever mounting it.
fn format(path: &Path, mib: u32) -> io::Result<()> {
    let tree = path.with_extension("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    fs::create_dir_all(&tree)?;
    for number in 0..OVERLAYS {
        fs::create_dir(tree.join(format!("u{number}")))?;
        fs::create_dir(tree.join(format!("w{number}")))?;
    }
    let file = fs::File::create(path)?;
    file.set_len(u64::from(mib) << 20)?;
    let output = Command::new(mkfs()?)
        .args([
            "-q", "-F", "-b", "4096", "-m", "0", "-i", "32768", "-J", "size=4",
        ])
        .args(["-O", "^resize_inode,sparse_super2"])
        .args([
            "-E",
            "packed_meta_blocks=1,nodiscard,lazy_itable_init=1,root_owner=0:0",
        ])
        .arg("-d")
        .arg(&tree)
        .arg(path)
        .stdin(Stdio::null())
        .output()?;
    fs::remove_dir_all(&tree)?;
    if output.status.success() {
        Ok(())
    } else {
        let text = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("mkfs.ext4: {}", text.trim())))
    }
}

/// Copies what is not zero.
fn dig_holes(from: &Path, to: &Path) -> io::Result<()> {
    let source = std::fs::File::open(from)?;
    let target = new_image(to)?;
    target.set_len(source.metadata()?.len())?;
    for (start, end) in data_ranges(&source)? {
        let mut data = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
        source.read_exact_at(&mut data, start)?;
        let mut at = start;
        for block in data.chunks(BLOCK) {
            if block.iter().any(|b| *b != 0) {
                target.write_all_at(block, at)?;
            }
            at += BLOCK as u64;
        }
    }
    target.sync_all()
}

/// Whether the kernel writes a file to the disk when it becomes a loop device: since Linux 6.14.
///
/// Then it is written here first, where it costs as much. The pages of the host's file system that
/// this reads would otherwise be charged to the sandbox's memory group, in which the device is
/// attached. They stay, and with them the group, long after the sandbox: thousands of dead groups
/// that the kernel goes through for each new one.
fn attaching_writes_out() -> bool {
    let system = rustix::system::uname();
    is_since_6_14(&system.release().to_string_lossy())
}

fn is_since_6_14(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6_u32, 14_u32),
        _ => false,
    }
}

fn sync(image: &Path) -> io::Result<()> {
    std::fs::File::open(image)?.sync_all()
}

/// Waits until no loop device stands on an image. The kernel takes the last mount of a dead sandbox
/// down in its own time, and two mounts of one image would destroy it. Blocking.
pub fn wait_until_released(image: &Path) -> Result<()> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    while is_attached(image)? {
        if start.elapsed() > RELEASE_LIMIT {
            return Err(Error::Timeout {
                what: "letting go of the sandbox's disk".into(),
                limit: RELEASE_LIMIT,
            });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    Ok(())
}

/// Whether a loop device stands on an image. Blocking.
pub(crate) fn is_attached(image: &Path) -> Result<bool> {
    backs_a_device(image).map_err(|e| Error::io("could not look for loop devices", e))
}

fn backs_a_device(image: &Path) -> io::Result<bool> {
    // The path that the kernel tells starts where the sandbox's view of the host did; the folder's
    // name, a sandbox id, is in it in any case and there is only one.
    let mut last = image.iter().rev();
    let (file, folder) = (last.next(), last.next());
    let tail: PathBuf = folder.into_iter().chain(file).collect();
    for device in std::fs::read_dir("/sys/block")? {
        let device = device?;
        let backing = device.path().join("loop/backing_file");
        match std::fs::read_to_string(&backing) {
            Ok(path)
                if Path::new(path.trim_end()).ends_with(&tail)
                    && may_stand_on(&device.file_name(), image) =>
            {
                return Ok(true);
            }
            // Not a loop device, or one without a file (any more).
            _ => {}
        }
    }
    Ok(false)
}

/// A folder that was restored from a backup has sandboxes with the same ids as the one that it is of.
fn may_stand_on(device: &OsStr, image: &Path) -> bool {
    let stands_on = || -> io::Result<bool> {
        let device = std::fs::File::open(Path::new("/dev").join(device))?;
        let Some(backing) = loopdev::backing_file(&device)? else {
            return Ok(false);
        };
        let image = std::fs::metadata(image)?;
        Ok(backing == (image.dev(), image.ino()))
    };
    // Two mounts of one image would destroy it: whoever does not know does not try.
    stands_on().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_write_out_what_is_attached_are_known_by_their_release() {
        for (release, writes) in [
            ("6.14.0", true),
            ("6.18.44-fc-v470", true),
            ("7.0-rc1", true),
            ("6.12.95+deb13-amd64", false),
            ("6.1.0-49-amd64", false),
            ("5.15.0-1", false),
            ("unknown", false),
        ] {
            assert_eq!(is_since_6_14(release), writes, "{release}");
        }
    }

    #[test]
    fn a_blank_disk_is_small_and_copies_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        let disks = Disks::open(folder.path().join("disks")).unwrap();
        let target = folder.path().join("disk.img");
        disks.create(512, &target).unwrap();
        let metadata = std::fs::metadata(&target).unwrap();
        assert_eq!(metadata.len(), 512 << 20);
        assert!(
            metadata.blocks() * 512 < 8 << 20,
            "{} blocks",
            metadata.blocks()
        );
        let blank = disks.blank(512).unwrap();
        assert!(std::fs::read(&target).unwrap() == std::fs::read(&blank).unwrap());
        let check = Command::new("e2fsck")
            .args(["-n", "-f"])
            .arg(&target)
            .output()
            .unwrap();
        assert!(
            check.status.success(),
            "{}",
            String::from_utf8_lossy(&check.stdout)
        );
    }
}
