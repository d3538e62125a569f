//! What holds of whatever a sandbox writes into its `/etc/passwd` and `/etc/group`.

use proptest::{collection::vec, prelude::*};

use super::*;

fn file() -> impl Strategy<Value = String> {
    let field = prop_oneof![4 => "[a-c]{0,1}", 2 => "[0-9]{1,11}", 1 => "/[a-c]?", 1 => ".{0,4}"];
    let line = vec(field, 0..8).prop_map(|fields| fields.join(":"));
    vec(line, 0..6).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whoever_is_found_is_in_the_files(
        name in "[a-c:\n]{0,2}",
        passwd in file(),
        group in file(),
    ) {
        if let Some(user) = find(&name, &passwd, &group) {
            prop_assert!(!name.is_empty() && !name.contains([':', '\n']));
            prop_assert!(user.home.is_absolute());
            prop_assert_eq!(user.groups[0], user.gid);
            let start = format!("{name}:");
            let line = passwd.lines().find(|line| line.starts_with(&start)).unwrap();
            prop_assert_eq!(line.split(':').nth(2).unwrap().parse::<u32>().unwrap(), user.uid);
            prop_assert!(user.groups.len() <= 1 + group.lines().count());
        }
        if let Some(id) = id_of(&name, &group) {
            prop_assert!(!name.is_empty());
            prop_assert!(by_id(&group).contains_key(&id));
        }
    }
}
