//! What holds of whatever somebody writes as an id: it becomes a part of host names and paths.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_id_is_safe_in_a_path_and_in_a_host_name(
        text in prop_oneof!["[a-z0-9]{0,45}", "[a-z0-9A-Z./\\-_\0]{0,10}", "[0-9a-f-]{36}", ".{0,10}"],
    ) {
        let plain = |text: &str| {
            (1..=40).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let sandbox = text.parse::<SandboxId>();
        prop_assert_eq!(sandbox.is_ok(), plain(&text));
        prop_assert!(sandbox.is_err() || sandbox.unwrap().as_str() == text);
        prop_assert_eq!(text.parse::<TemplateId>().is_ok(), plain(&text));
        if let Ok(tenant) = text.parse::<TenantId>() {
            let uuid = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
            prop_assert!(tenant.as_str().len() == 36 && tenant.as_str().bytes().all(uuid));
        }
        let quoted = serde_json::to_string(&text).unwrap();
        prop_assert_eq!(serde_json::from_str::<SandboxId>(&quoted).is_ok(), plain(&text));
    }
}
