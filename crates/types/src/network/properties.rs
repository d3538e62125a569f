//! What holds of whatever somebody writes as a destination.

use proptest::{option, prelude::*};

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_destination_is_what_was_written(
        bits in any::<u32>(),
        prefix in option::of(0..=32_u8),
        ports in option::of((1..=u16::MAX, 1..=u16::MAX)),
    ) {
        let mut text = Ipv4Addr::from(bits).to_string();
        if let Some(prefix) = prefix {
            text = format!("{text}/{prefix}");
        }
        let ports = ports.map(|(a, b)| a.min(b)..=a.max(b));
        if let Some(ports) = &ports {
            text = format!("{text}:{}-{}", ports.start(), ports.end());
        }
        let Destination::V4 { address, prefix: found, ports: read } = text.parse().unwrap() else {
            return Err(TestCaseError::fail("not IPv4"));
        };
        prop_assert_eq!((found, read), (prefix.unwrap_or(32), ports));
        let host_bits = 32 - u32::from(found);
        let same = |number: u32| u64::from(number) >> host_bits;
        prop_assert_eq!(same(u32::from(address)), same(bits));
        prop_assert_eq!(u64::from(u32::from(address)) % (1_u64 << host_bits), 0);
    }

    #[test]
    fn any_text_is_a_destination_or_none(
        text in prop_oneof![
            "[0-9]{1,3}(\\.[0-9]{1,3}){3}(/[0-9+-]{0,3})?(:[0-9+-]{0,11})?",
            "[0-9a-f:]{0,20}(/[0-9]{0,4})?",
            ".{0,20}",
        ],
    ) {
        if let Ok(Destination::V4 { prefix, ports, .. }) = text.parse() {
            prop_assert!(prefix <= 32 && !text.contains('+'));
            prop_assert!(ports.is_none_or(|ports| *ports.start() > 0 && !ports.is_empty()));
        }
    }
}
