//! The ext4 image of a volume.

use std::{
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt, chown},
    path::Path,
    process::{Command, Stdio},
};

use fs_err as fs;

/// The sandbox's usual user.
const USER: u32 = 1000;

/// Formats a sparse image of `mib` MiB with the two folders in it.
pub(crate) fn format(image: &Path, mib: u32) -> io::Result<()> {
    let tree = image.with_extension("tree");
    make_tree(&tree)?;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(image)?;
    file.set_len(u64::from(mib) << 20)?;
    let mkfs = soulbox_sys::find_program("mkfs.ext4").ok_or_else(|| {
        let text = "mkfs.ext4 is not installed (package e2fsprogs)";
        io::Error::new(io::ErrorKind::NotFound, text)
    })?;
    let output = Command::new(mkfs)
        .args(["-q", "-F", "-b", "4096", "-m", "0"])
        .args([
            "-E",
            "nodiscard,lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0",
        ])
        .arg("-d")
        .arg(&tree)
        .arg(image)
        .stdin(Stdio::null())
        .output()?;
    fs::remove_dir_all(&tree)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("mkfs.ext4: {}", text.trim())));
    }
    soulbox_durable::sync_file(image)
}

fn make_tree(tree: &Path) -> io::Result<()> {
    let files = tree.join(crate::mount::FILES);
    let staging = tree.join(crate::mount::STAGING);
    fs::create_dir_all(&files)?;
    fs::create_dir_all(&staging)?;
    // Whoever a template's processes run as, they are the tenant's own.
    fs::set_permissions(&files, PermissionsExt::from_mode(0o777))?;
    fs::set_permissions(&staging, PermissionsExt::from_mode(0o700))?;
    chown(&files, Some(USER), Some(USER))
}
