//! Loading a seccomp filter for this thread and everything it becomes.
#![expect(unsafe_code, reason = "seccomp has no safe wrapper")]

use std::io;

/// Loads a classic BPF program, given as the kernel's `sock_filter` array in bytes.
///
/// The caller needs `CAP_SYS_ADMIN` in its user namespace; `no_new_privs` is not set, because
/// `sudo` inside must go on working.
pub fn load(program: &[u8]) -> io::Result<()> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "not a BPF program");
    if program.is_empty() || !program.len().is_multiple_of(size_of::<libc::sock_filter>()) {
        return Err(invalid());
    }
    let mut instructions: Vec<libc::sock_filter> = program
        .chunks_exact(size_of::<libc::sock_filter>())
        .map(|raw| libc::sock_filter {
            code: u16::from_ne_bytes([raw[0], raw[1]]),
            jt: raw[2],
            jf: raw[3],
            k: u32::from_ne_bytes([raw[4], raw[5], raw[6], raw[7]]),
        })
        .collect();
    let fprog = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| invalid())?,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: fprog describes `instructions`, which outlives the call; the kernel copies it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const fprog,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
