//! What holds of whatever a sandbox tells of a process's end.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_status_gives_a_code_for_a_shell(
        exit_code in any::<i32>(),
        status in prop_oneof!["(signal: )(signal )?[0-9]{1,4}( .core dumped.)?", "\\PC{0,30}"],
    ) {
        let end = EndEvent { exit_code, exited: false, status, error: None };
        let expected = end.signal().map_or(exit_code.to_le_bytes()[0], |signal| 128 + signal);
        prop_assert_eq!(end.shell_status(), expected);
    }
}
