//! What holds of whatever is asked of the name server.

use std::net::Ipv4Addr;

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_asked_there_is_an_answer_to_it_or_silence(
        labels in vec("[a-zA-Z0-9_-]{1,10}", 0..4),
        ours in any::<bool>(),
        header in any::<[u8; 12]>(),
        plain in any::<bool>(),
        kind in prop_oneof![Just(1_u16), Just(28), Just(255), any::<u16>()],
        damage in vec((any::<Index>(), any::<u8>()), 0..4),
    ) {
        let zone = Zone {
            domain: Name::from_ascii("sbx.localhost.").unwrap(),
            answer: Ipv4Addr::LOCALHOST.into(),
        };
        let mut bytes = if plain {
            vec![header[0], header[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]
        } else {
            header.to_vec()
        };
        let end: &[&str] = if ours { &["SBX", "localhost"] } else { &["org"] };
        for label in labels.iter().map(String::as_str).chain(end.iter().copied()) {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend(label.bytes());
        }
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1]);
        let whole = plain && damage.is_empty();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }

        let reply = zone.reply(&bytes);
        prop_assert!(reply.is_some() || !whole);
        let Some(reply) = reply else {
            return Ok(());
        };
        // Never to an answer, and never much more than was asked: nobody is flooded through us.
        prop_assert!(bytes[2] & 0x80 == 0 && reply[2] & 0x80 != 0);
        prop_assert_eq!(&reply[..2], &bytes[..2]);
        prop_assert!(reply.len() <= 2 * bytes.len() + 64);
        prop_assert_eq!(zone.reply(&reply), None);
        let read = Message::from_vec(&reply).unwrap();
        if whole {
            prop_assert_eq!(read.metadata.response_code == ResponseCode::NoError, ours);
            let expected = usize::from(ours && matches!(kind, 1 | 255));
            prop_assert_eq!(read.answers.len(), expected);
        }
    }
}
