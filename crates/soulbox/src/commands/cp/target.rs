//! Where a copy goes, by the rules of `cp -r`.

use std::path::{Component, Path};

/// `folder/.` and `.` are what is in the folder.
pub(super) fn means_contents(path: &Path) -> bool {
    // `Path` drops trailing dots when it takes itself apart: look at the text.
    let text = path.as_os_str().as_encoded_bytes();
    text == b"." || text.ends_with(b"/.")
}

/// The last component, if it is a plain name.
pub(super) fn last_name(path: &Path) -> Option<String> {
    match path.components().next_back()? {
        Component::Normal(name) => name.to_str().map(str::to_owned),
        _ => None,
    }
}

/// A trailing slash says that a folder is meant.
pub(super) fn says_folder(path: &str) -> bool {
    path.is_empty() || path.ends_with('/')
}

/// A path inside a sandbox.
pub(super) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{}/{name}", folder.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_names() {
        assert_eq!(last_name(Path::new("/tmp/a")).as_deref(), Some("a"));
        assert_eq!(last_name(Path::new("a/b/")).as_deref(), Some("b"));
        for nameless in ["/", "..", "a/..", ""] {
            assert_eq!(last_name(Path::new(nameless)), None, "{nameless}");
        }
    }

    #[test]
    fn a_dot_at_the_end_means_the_contents() {
        assert!(means_contents(Path::new(".")) && means_contents(Path::new("src/.")));
        assert!(!means_contents(Path::new("src")) && !means_contents(Path::new("src/")));
        assert!(!means_contents(Path::new("x.")));
    }

    #[test]
    fn joining_keeps_the_root_and_the_home() {
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/tmp/", "a"), "/tmp/a");
        assert_eq!(join("", "a"), "a");
    }
}
