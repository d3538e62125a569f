//! What holds of whatever clients write as paths.

use std::ffi::OsStr;

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => select(vec!["a", "b", "..", ".", "", "~", "~root", "\0"]).prop_map(str::to_owned),
        1 => ".{0,5}",
    ];
    vec(part, 0..6).prop_map(|parts| parts.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_path_is_absolute_or_refused(
        path in path(),
        home in select(vec!["/", "/root", "/home/user"]),
        workdir in select(vec!["", "/work", "relative", "~"]),
    ) {
        let user = User {
            name: "user".to_owned(),
            uid: 1,
            gid: 1,
            home: home.into(),
            groups: Vec::new(),
        };
        match resolve(&path, &user, workdir) {
            Ok(resolved) => {
                prop_assert!(resolved.is_absolute());
                prop_assert!(!path.contains('\0'));
                // What is written absolutely is the kernel's to read.
                let dots = [OsStr::new("."), OsStr::new("..")];
                let has_dots = resolved.iter().any(|part| dots.contains(&part));
                prop_assert!(path.starts_with('/') || !has_dots);
            }
            Err(Error::Nul) => prop_assert!(path.contains('\0')),
            Err(Error::OtherHome) => {
                prop_assert!(path.starts_with('~') && path != "~" && !path.starts_with("~/"));
            }
        }
    }
}
