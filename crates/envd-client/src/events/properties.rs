//! What holds of whatever a sandbox tells of a process.

use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use super::*;

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[A-Za-z0-9+/=]{0,12}".prop_map(Value::from),
        "(signal: )?\\PC{0,200}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
    ]
}

/// Objects that are nearly events.
fn nearly_event() -> impl Strategy<Value = Value> {
    const KINDS: [&str; 5] = ["start", "data", "end", "keepalive", "later"];
    const FIELDS: [&str; 7] = [
        "pid", "stdout", "stderr", "exitCode", "exited", "status", "x",
    ];
    let object = |names: &'static [&'static str], value: BoxedStrategy<Value>| {
        let pair = (proptest::sample::select(names), value);
        vec(pair, 0..4).prop_map(|pairs| {
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
    fn output_comes_back(bytes in vec(any::<u8>(), 0..300), to_stderr in any::<bool>()) {
        let (name, stream) = if to_stderr {
            ("stderr", OutputStream::Stderr)
        } else {
            ("stdout", OutputStream::Stdout)
        };
        let message = json!({ "event": { "data": { name: STANDARD.encode(&bytes) } } });
        let event = parse(message.to_string().as_bytes()).unwrap();
        prop_assert_eq!(event, Some(Event::Output(stream, bytes)));
    }

    #[test]
    fn what_is_nearly_an_event_is_one_or_a_protocol_error(message in nearly_event()) {
        match parse(message.to_string().as_bytes()) {
            Ok(Some(Event::Ended(ProcessExit::Signal(name)))) => {
                prop_assert!(name.chars().count() <= 100);
            }
            Ok(_) => {}
            Err(Error::Protocol(reason)) => prop_assert!(reason.len() <= 4 << 10),
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn any_bytes_are_no_event_or_one_and_end_a_stream_with_an_error(
        bytes in prop_oneof![
            vec(any::<u8>(), 0..100),
            nearly_event().prop_map(|value| value.to_string().into_bytes()),
            (".{0,20}", ".{0,5000}").prop_map(|(code, message)| {
                json!({ "error": { "code": code, "message": message } }).to_string().into_bytes()
            }),
        ],
    ) {
        prop_assert!(matches!(parse(&bytes), Ok(_) | Err(Error::Protocol(_))));
        match ended_early(&bytes) {
            Error::Protocol(_) => {}
            Error::Refused { code, message } => {
                prop_assert!(code.len() <= 4 << 10 && message.len() <= 4 << 10);
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
