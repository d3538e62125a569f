//! What holds of whatever a kernel sends.

use proptest::{collection::vec, prelude::*};

use super::*;

/// All messages up to the end or the first mistake.
fn read(mut wire: &[u8]) -> (Vec<Message>, Error) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut messages = Vec::new();
        loop {
            match read_message(&mut wire).await {
                Ok(message) => messages.push(message),
                Err(error) => return (messages, error),
            }
        }
    })
}

fn parts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(vec(any::<u8>(), 0..300), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_come_back_with_commands_between_them(
        sent in vec((parts(), vec(any::<u8>(), 0..300)), 0..4),
    ) {
        let wire = sent.iter().flat_map(|(parts, command)| [encode_command(command), encode(parts)]);
        let (found, end) = read(&wire.collect::<Vec<_>>().concat());
        let sent = sent.into_iter().map(|(parts, _)| Message { parts, cut: false });
        prop_assert_eq!(found, sent.collect::<Vec<_>>());
        prop_assert!(matches!(end, Error::Io(_)));
    }

    #[test]
    fn any_bytes_are_messages_and_then_an_error(
        pieces in vec(
            prop_oneof![
                4 => parts().prop_map(|parts| encode(&parts)),
                1 => (0..8_u8, any::<u64>()).prop_map(|(flags, length)| {
                    [&[flags | LONG][..], &length.to_be_bytes()].concat()
                }),
                1 => vec(any::<u8>(), 0..12),
            ],
            0..5,
        ),
    ) {
        let wire = pieces.concat();
        let (found, end) = read(&wire);
        let kept = found.iter().flat_map(|message| &message.parts).map(Vec::len).sum::<usize>();
        prop_assert!(kept <= wire.len());
        prop_assert!(found.iter().all(|message| message.parts.len() <= MAX_PARTS));
        prop_assert!(matches!(end, Error::Io(_) | Error::Protocol(_)));
    }
}
