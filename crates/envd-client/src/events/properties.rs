//! What holds of whatever a sandbox tells of a process. How events are written is the protocol's.

use proptest::{collection::vec, prelude::*};
use serde_json::json;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_comes_of_an_end_is_bounded(
        code in any::<i32>(),
        exited in any::<bool>(),
        status in "(signal: )?\\PC{0,200}",
    ) {
        let end = json!({ "exitCode": code, "exited": exited, "status": status });
        let message = json!({ "event": { "end": end } }).to_string();
        match parse(message.as_bytes()).unwrap() {
            Some(Event::Ended(ProcessExit::Code(read))) => prop_assert_eq!(read, code),
            Some(Event::Ended(ProcessExit::Signal(name))) => {
                prop_assert!(!exited && name.chars().count() <= 100);
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn any_bytes_are_no_event_or_one_and_end_a_stream_with_an_error(
        bytes in prop_oneof![
            vec(any::<u8>(), 0..100),
            "\\{\"event\":\\{\"(start|data|end)\":.{0,5000}".prop_map(String::into_bytes),
            (".{0,20}", ".{0,5000}").prop_map(|(code, message)| {
                json!({ "error": { "code": code, "message": message } }).to_string().into_bytes()
            }),
        ],
    ) {
        match parse(&bytes) {
            Ok(_) => {}
            Err(Error::Protocol(reason)) => prop_assert!(reason.len() <= 4 << 10),
            Err(other) => prop_assert!(false, "{other:?}"),
        }
        match ended_early(&bytes) {
            Error::Protocol(_) => {}
            Error::Refused { code, message } => {
                prop_assert!(code.len() <= 4 << 10 && message.len() <= 4 << 10);
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
