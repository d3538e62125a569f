//! A system call filter.

use rustix::{io::Errno, process::getpriority_process};

use super::{Answer, Step};

/// One instruction of classic BPF, as the kernel's `sock_filter`.
fn instruction(code: u16, jump_true: u8, jump_false: u8, value: u32) -> [u8; 8] {
    let (c, v) = (code.to_ne_bytes(), value.to_ne_bytes());
    [c[0], c[1], jump_true, jump_false, v[0], v[1], v[2], v[3]]
}

const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// Forbids a call that nothing here needs, and sees it refused.
pub(super) fn seccomp() -> Answer {
    let number = u32::try_from(libc::SYS_getpriority).step("system call number")?;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EXDEV.unsigned_abs();
    let program = [
        instruction(LOAD_WORD, 0, 0, 0), // the number is the first word of seccomp_data
        instruction(JUMP_IF_EQUAL, 0, 1, number),
        instruction(RETURN, 0, 0, refuse),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    soulbox_sys::seccomp::load(program.as_flattened()).step("load a filter")?;
    match getpriority_process(None) {
        Err(Errno::XDEV) => Ok("a filter was loaded and refused a call".into()),
        _ => Err("a filter was loaded and had no effect".into()),
    }
}
