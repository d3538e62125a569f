//! Executing an open file, and closing what must not be inherited.
#![expect(unsafe_code, reason = "execveat and close_range have no safe wrapper")]

use std::{
    ffi::{CStr, c_char},
    io,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
};

/// Replaces this program by an open file; returns only on failure.
pub fn execute_file(file: BorrowedFd<'_>, arguments: &[&CStr], environment: &[&CStr]) -> io::Error {
    let pointers = |strings: &[&CStr]| -> Vec<*const c_char> {
        strings
            .iter()
            .map(|s| s.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (argv, envp) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays end with a null pointer and outlive the call, as do their strings.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    io::Error::last_os_error()
}

/// Marks every descriptor from `first` on to be closed by the next exec.
pub fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    // SAFETY: only sets a flag on descriptors; none is closed here.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes `number` refer to what `from` refers to, and survive an exec.
///
/// Whatever `number` was before is closed: call it only when nothing owns that number any more.
pub fn place_at(from: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: dup2 on numbers only; the caller gives up the previous meaning of `number`.
    let result = unsafe {
        if from.as_raw_fd() == number {
            libc::fcntl(number, libc::F_SETFD, 0)
        } else {
            libc::dup2(from.as_raw_fd(), number)
        }
    };
    if result >= 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
