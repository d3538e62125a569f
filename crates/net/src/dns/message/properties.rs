//! What holds of whatever comes as a DNS message.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

/// A question for a name of these labels.
fn query() -> impl Strategy<Value = Vec<u8>> {
    let label = vec(any::<u8>(), 1..20);
    (
        any::<[u8; 2]>(),
        any::<u8>(),
        vec(label, 0..5),
        any::<[u8; 4]>(),
    )
        .prop_map(|(id, flags, labels, kind)| {
            let mut message = vec![id[0], id[1], flags & !RESPONSE, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for label in labels {
                message.push(u8::try_from(label.len()).unwrap());
                message.extend(label);
            }
            message.push(0);
            message.extend(kind);
            message
        })
}

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let damaged = (
        query(),
        vec((any::<Index>(), any::<u8>()), 0..4),
        any::<Index>(),
    )
        .prop_map(|(mut message, damage, end)| {
            for (at, byte) in damage {
                let at = at.index(message.len());
                message[at] = byte;
            }
            message.truncate(HEADER + end.index(message.len()));
            message
        });
    prop_oneof![damaged, vec(any::<u8>(), 0..300)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_failure_answers_its_question_and_is_no_question(query in query(), other in any::<[u8; 2]>()) {
        prop_assert!(is_query(&query));
        let mut failed = failure(&query);
        prop_assert!(answers(&failed, &query) && !is_query(&failed));
        prop_assume!(other != id(&query));
        set_id(&mut failed, other);
        prop_assert!(!answers(&failed, &query));
    }

    #[test]
    fn an_answer_to_another_name_is_none(query in query(), at in any::<Index>(), byte in any::<u8>()) {
        let mut failed = failure(&query);
        let at = HEADER + at.index(failed.len() - HEADER);
        prop_assume!(!failed[at].eq_ignore_ascii_case(&byte));
        failed[at] = byte;
        prop_assert!(!answers(&failed, &query));
    }

    #[test]
    fn any_bytes_can_be_looked_at(message in hostile(), query in query()) {
        if is_query(&message) {
            prop_assert!(message.len() > HEADER && message[2] & RESPONSE == 0);
            let failed = failure(&message);
            prop_assert!(failed.len() <= message.len());
            prop_assert!(answers(&failed, &message));
        }
        if answers(&message, &query) {
            prop_assert_eq!(&message[..2], &query[..2]);
            prop_assert!(message[2] & RESPONSE != 0);
        }
    }
}
