//! What holds of whatever a sandbox tells of a process.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        "[A-Za-z0-9+/=]{0,12}".prop_map(Value::from),
        "\\PC{0,50}".prop_map(Value::from),
        Just(json!({})),
    ]
}

/// Objects that are nearly events.
fn nearly_event() -> impl Strategy<Value = Value> {
    const KINDS: [&str; 5] = ["start", "data", "end", "keepalive", "later"];
    const FIELDS: [&str; 8] = [
        "pid", "stdout", "stderr", "pty", "exitCode", "exited", "status", "error",
    ];
    let object = |names: &'static [&'static str], value: BoxedStrategy<Value>| {
        vec((select(names), value), 0..4).prop_map(|pairs| {
            let pairs = pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value));
            Value::Object(pairs.collect())
        })
    };
    let inner = prop_oneof![4 => object(&FIELDS, scalar().boxed()), 1 => scalar()];
    let event = prop_oneof![8 => object(&KINDS, inner.boxed()), 1 => scalar()];
    event.prop_map(|event| json!({ "event": event }))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn output_comes_back(bytes in vec(any::<u8>(), 0..300), kind in 0..3_usize) {
        let name = ["stdout", "stderr", "pty"][kind];
        let message = json!({ "event": { "data": { name: STANDARD.encode(&bytes) } } });
        let bytes = Bytes::from(bytes);
        let expected = match kind {
            0 => Event::Stdout(bytes),
            1 => Event::Stderr(bytes),
            _ => Event::Pty(bytes),
        };
        let Some(Parsed::Event(event)) = parse(message.to_string().as_bytes()).unwrap() else {
            return Err(TestCaseError::fail("no event"));
        };
        prop_assert_eq!(event, expected);
    }

    #[test]
    fn any_message_is_an_event_or_a_protocol_error(
        message in prop_oneof![
            3 => nearly_event().prop_map(|value| value.to_string().into_bytes()),
            1 => vec(any::<u8>(), 0..100),
        ],
    ) {
        match parse(&message) {
            // Whatever it says, there is a status that a shell can end with.
            Ok(Some(Parsed::Event(Event::End(end)))) => {
                let status = end.shell_status();
                prop_assert!(end.signal().is_none_or(|signal| status == 128 + signal));
            }
            Ok(_) => {}
            Err(error) => prop_assert!(matches!(error, Error::Protocol { .. }), "{error:?}"),
        }
    }

    #[test]
    fn any_status_gives_a_code_for_a_shell(
        exit_code in any::<i32>(),
        status in prop_oneof!["(signal: )(signal )?[0-9]{1,4}( .core dumped.)?", "\\PC{0,30}"],
    ) {
        let end = End { exit_code, exited: false, status, error: None };
        let expected = end.signal().map_or(exit_code.to_le_bytes()[0], |signal| 128 + signal);
        prop_assert_eq!(end.shell_status(), expected);
    }
}
