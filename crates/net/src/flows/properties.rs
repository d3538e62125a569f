//! What holds of whatever the kernel tells of connections.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn attributes_come_back(
        values in vec((1..100_u16, vec(any::<u8>(), 0..40), any::<bool>()), 1..6),
        wanted in any::<Index>(),
    ) {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|(kind, value, nest)| if *nest { nested(*kind, value) } else { plain(*kind, value) })
            .collect();
        prop_assert_eq!(bytes.len() % 4, 0);
        let wanted = wanted.get(&values).0;
        let first = values.iter().find(|(kind, ..)| *kind == wanted).unwrap();
        let (value, whole) = of_kind(&bytes, wanted).unwrap();
        prop_assert_eq!(value, &first.1[..]);
        prop_assert!(whole.len() >= value.len() + 4 && whole.len() % 4 == 0);
        prop_assert!(of_kind(&bytes, 100).is_none());
    }

    #[test]
    fn a_connection_is_found_among_other_attributes(
        source in any::<[u8; 4]>(),
        before in vec(any::<u8>(), 0..20),
        identifier in any::<[u8; 4]>(),
    ) {
        let addresses = nested(TUPLE_ADDRESSES, &plain(SOURCE, &source));
        let mut body = FAMILY.to_vec();
        body.extend(plain(99, &before));
        body.extend(nested(ORIGINAL, &addresses));
        body.extend(plain(IDENTIFIER, &identifier));
        let found = flow(&body).unwrap();
        prop_assert_eq!(found.source, Ipv4Addr::from(source));
        prop_assert!(found.name.ends_with(&identifier));
    }

    #[test]
    fn any_bytes_can_be_looked_at(
        body in vec(any::<u8>(), 0..80),
        damage in vec((any::<Index>(), any::<u8>()), 0..4),
    ) {
        let addresses = nested(TUPLE_ADDRESSES, &plain(SOURCE, &[10, 0, 0, 1]));
        let mut damaged = [&FAMILY[..], &nested(ORIGINAL, &addresses), &plain(IDENTIFIER, &[1; 4])].concat();
        for (at, byte) in damage {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        for body in [body, damaged] {
            if let Some(found) = flow(&body) {
                prop_assert!(found.name.len() <= 2 * body.len());
            }
            let _any = refusal(&body);
        }
    }
}
