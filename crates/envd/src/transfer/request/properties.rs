//! What holds of whatever a COPY asks for.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn path() -> impl Strategy<Value = String> {
    let part = select(vec!["a", "b*", "c?", "[d]", "..", ".", ""]);
    vec(part, 0..6).prop_map(|parts| parts.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_source_stays_among_the_files_or_is_refused(src in prop_oneof![path().boxed(), ".{0,12}".boxed()]) {
        match Source::parse(&src) {
            Ok(source) => {
                let clean = |part: &String| {
                    !part.contains('/') && !matches!(part.as_str(), "" | "." | "..")
                };
                prop_assert!(source.literal.iter().all(clean));
                let before = source.before_glob.unwrap_or_default();
                prop_assert_eq!(&before[..], &source.literal[..before.len()]);
            }
            Err(error) => prop_assert!(matches!(error, Error::Move(_))),
        }
    }

    #[test]
    fn a_target_is_absolute(dest in path(), workdir in path()) {
        prop_assert!(Target::new(&dest, &workdir).path.is_absolute());
    }

    #[test]
    fn any_query_is_a_wish_or_refused(
        fields in vec(
            (
                select(vec!["src", "dest", "owner", "mode", "workdir", "user", "keep_owners", "x"]),
                prop_oneof![path(), "[0-9]{0,12}(:[0-9]{0,12})?", ".{0,8}"],
            ),
            0..8,
        ),
    ) {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        match CopyRequest::parse(Some(&query)) {
            Ok(request) => {
                prop_assert!(request.mode.is_none_or(|mode| mode <= 0o7777));
                let nobody = |ownership| match ownership {
                    Ownership::All { uid, gid } => uid == u32::MAX || gid == u32::MAX,
                    Ownership::Kept => false,
                };
                prop_assert!(!nobody(request.ownership));
            }
            Err(error) => prop_assert!(matches!(error, Error::Move(_))),
        }
    }
}
