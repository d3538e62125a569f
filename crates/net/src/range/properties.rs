//! What holds of whatever is written as a range of addresses.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_range_comes_back_and_has_its_own_addresses(
        address in any::<u32>(),
        prefix in 0..=32_u8,
        offset in any::<u32>(),
        other in any::<u32>(),
    ) {
        let range = Ipv4Net::new(Ipv4Addr::from(address), prefix).unwrap();
        prop_assert_eq!(range.to_string().parse::<Ipv4Net>(), Ok(range));
        prop_assert!(range.contains(Ipv4Addr::from(address)));
        match range.nth(offset) {
            Some(nth) => prop_assert!(range.contains(nth)),
            None => prop_assert!(u64::from(offset) >= range.size()),
        }
        let distance = u64::from(other.wrapping_sub(u32::from(range.address())));
        prop_assert_eq!(range.contains(Ipv4Addr::from(other)), distance < range.size());
    }

    #[test]
    fn any_text_is_a_range_or_none(
        text in prop_oneof!["[0-9]{1,3}(\\.[0-9]{1,3}){3}(/[0-9+-]{0,3})?", ".{0,20}"],
    ) {
        if let Ok(range) = text.parse::<Ipv4Net>() {
            prop_assert!(range.to_string().starts_with(text.split('/').next().unwrap()));
        }
    }
}
