//! Taking a variable out of the environment, so that no program started from here has it.
#![expect(
    unsafe_code,
    reason = "the environment belongs to all threads of a process"
)]

use std::ffi::OsString;

/// The value of a variable, which is then gone. For the beginning of `main`: where there is more than
/// one thread, it stays.
pub fn take_variable(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads == 1 {
        // SAFETY: this is the only thread, so nobody reads or changes the environment meanwhile.
        unsafe { std::env::remove_var(name) };
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_other_threads_about_nothing_is_changed() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || wait.recv().ok());
        let path = std::env::var_os("PATH");
        assert!(path.is_some());
        assert_eq!(take_variable("PATH"), path);
        assert_eq!(std::env::var_os("PATH"), path);
        assert_eq!(take_variable("SURELY_NOT_SET_HERE"), None);
        drop(done);
        other.join().unwrap();
    }
}
