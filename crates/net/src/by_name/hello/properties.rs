//! What holds of whatever a sandbox sends as TLS.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::samples::{Sample, in_records};
use super::*;

fn sample() -> impl Strategy<Value = Sample> {
    let others = vec((1..0xfe00_u16, vec(any::<u8>(), 0..60)), 0..8);
    let name = "[a-zA-Z0-9.-]{1,60}";
    (
        name,
        others,
        vec(any::<u8>(), 0..=32),
        vec(any::<[u8; 2]>(), 1..20),
        any::<Index>(),
    )
        .prop_map(|(name, mut others, session, ciphers, place)| {
            let own = Sample::of(&name).extensions;
            let place = place.index(others.len() + 1);
            others.splice(place..place, own);
            Sample {
                session,
                ciphers: ciphers.concat(),
                extensions: others,
                has_extensions: true,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_name_is_found_however_it_is_cut_and_whatever_follows(
        sample in sample(),
        size in 1..300_usize,
        rest in vec(any::<u8>(), 0..50),
    ) {
        let whole = in_records(&sample.message(), size);
        let Ok(Hello::Name(name)) = read(&[whole.as_slice(), &rest].concat()) else {
            return Err(TestCaseError::fail("no name"));
        };
        let own = sample.extensions.iter().find(|(kind, _)| *kind == 0).unwrap();
        prop_assert_eq!(name.as_bytes(), &own.1[5..]);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic_and_within_bounds(
        sample in sample(),
        size in 1..300_usize,
        damage in vec((any::<Index>(), any::<u8>()), 0..6),
        end in any::<Index>(),
    ) {
        let mut bytes = in_records(&sample.message(), size);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        if let Ok(Hello::Needs(length)) = read(&bytes) {
            // It is asked for more each time, so it comes to an end.
            prop_assert!(bytes.len() < length && length <= LARGEST);
        }
    }

    #[test]
    fn noise_is_read_without_a_panic(mut bytes in vec(any::<u8>(), 0..2000)) {
        if let Some(first) = bytes.first_mut() {
            *first = HANDSHAKE;
        }
        drop(read(&bytes));
    }
}
