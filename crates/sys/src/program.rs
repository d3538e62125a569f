//! Programs of the host.

use std::path::PathBuf;

/// Where administrators' programs are, which the path of a service or a user often leaves out.
const ADMINISTRATORS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Finds a program on the path, or where administrators' programs are.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(ADMINISTRATORS.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_others_are_not() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("soulbox-no-such-program"), None);
    }
}
