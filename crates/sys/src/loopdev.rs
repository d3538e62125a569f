//! A file as a block device that frees itself with its last user.
#![expect(unsafe_code, reason = "the loop driver is spoken to with ioctls")]

use std::{
    fs::{File, OpenOptions},
    io,
    mem::MaybeUninit,
    os::fd::AsRawFd,
    path::PathBuf,
};

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// Others race for the same free device; each loss costs some microseconds.
const ATTEMPTS: u32 = 200;

/// `struct loop_info64` of the kernel's interface.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of the kernel's interface.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// The device and the inode of the file that a loop device stands on; `None`: of none.
pub fn backing_file(device: &File) -> io::Result<Option<(u64, u64)>> {
    let mut info = MaybeUninit::<LoopInfo64>::zeroed();
    // SAFETY: the kernel fills the structure, which is as large as it expects.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENXIO) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: every value of it is valid, zeros too.
    let info = unsafe { info.assume_init() };
    Ok(Some((info.device, info.inode)))
}

/// An attached loop device. It goes away when this is dropped and nothing has it mounted.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _open: File,
}

impl LoopDevice {
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    pub fn attach(image: &File) -> io::Result<Self> {
        Self::attach_with(image, 0)
    }

    /// Nothing is written to the image, whatever is mounted.
    pub fn attach_read_only(image: &File) -> io::Result<Self> {
        Self::attach_with(image, LO_FLAGS_READ_ONLY)
    }

    fn attach_with(image: &File, flags: u32) -> io::Result<Self> {
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")?;
        for _ in 0..ATTEMPTS {
            // SAFETY: takes no argument and returns a number.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = OpenOptions::new().read(true).write(true).open(&path)?;
            match configure(&device, image, flags) {
                Ok(()) => {
                    return Ok(Self {
                        path,
                        _open: device,
                    });
                }
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "no free loop device",
        ))
    }
}

fn configure(device: &File, image: &File, flags: u32) -> io::Result<()> {
    // SAFETY: plain data for which all zeroes is a valid value.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = image.as_raw_fd().unsigned_abs();
    config.block_size = 4096;
    config.info.flags = LO_FLAGS_AUTOCLEAR | flags;
    // SAFETY: the kernel reads one loop_config from the pointer.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
