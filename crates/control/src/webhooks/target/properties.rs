//! What holds of whatever a tenant writes as the address of a webhook.

use std::net::Ipv4Addr;

use proptest::{option, prelude::*};

use super::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases * 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_target_is_what_was_written(
        https in any::<bool>(),
        host in "[a-z]{1,8}(\\.[a-z]{1,5}){0,2}",
        port in option::of(any::<u16>()),
        path in "(/[a-z0-9]{0,5}){0,3}(\\?[a-z=]{0,5})?",
    ) {
        let scheme = if https { "https" } else { "http" };
        let authority = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        let target = Target::parse(&format!("{scheme}://{authority}{path}"), false).unwrap();
        let usual = if https { 443 } else { 80 };
        prop_assert_eq!((target.https, target.port), (https, port.unwrap_or(usual)));
        prop_assert_eq!((target.host, target.authority), (host, authority));
        let slash = if path.starts_with('/') { "" } else { "/" };
        prop_assert_eq!(target.path, format!("{slash}{path}"));
    }

    #[test]
    fn an_address_that_is_not_public_is_refused(v4 in any::<u32>(), v6 in any::<u128>(), mapped in any::<bool>()) {
        let v4 = Ipv4Addr::from(v4);
        let v6 = if mapped { v4.to_ipv6_mapped() } else { Ipv6Addr::from(v6) };
        for (url, address) in [
            (format!("https://{v4}/x"), IpAddr::V4(v4)),
            (format!("http://[{v6}]:8080/x"), IpAddr::V6(v6)),
        ] {
            prop_assert_eq!(Target::parse(&url, false).is_ok(), is_public(address), "{}", url);
            prop_assert!(Target::parse(&url, true).is_ok());
        }
    }

    #[test]
    fn any_text_is_a_target_that_goes_where_it_says_or_refused(
        url in prop_oneof![
            "https?://[a-z0-9.@:\\[\\]-]{0,14}(:[0-9a-z]{0,6})?(/[ -~]{0,8})?",
            "[ -~]{0,30}",
        ],
    ) {
        match Target::parse(&url, false) {
            Ok(target) => {
                prop_assert!(!target.host.is_empty() && !target.host.contains(['@', '/', '[', ']']));
                prop_assert!(target.path.starts_with('/'));
                prop_assert!(url.to_ascii_lowercase().contains(&target.host.to_ascii_lowercase()));
                // A port that is written is the one that is used.
                let written = target.authority.rsplit_once(':').map(|(_, port)| port);
                let written = written.filter(|_| !target.authority.ends_with(']'));
                if let Some(written) = written.filter(|port| !port.is_empty()) {
                    prop_assert_eq!(written.parse::<u16>().ok(), Some(target.port), "{}", url);
                }
            }
            Err(error) => prop_assert!(matches!(error, Error::Invalid(_)), "{error:?}"),
        }
    }
}
