//! What holds of whatever a sandbox tells of a process.

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::{collection::vec, prelude::*, sample::select};
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

fn event() -> impl Strategy<Value = Event> {
    let stream = select(vec![
        OutputStream::Stdout,
        OutputStream::Stderr,
        OutputStream::Pty,
    ]);
    prop_oneof![
        any::<u32>().prop_map(|pid| Event::Started { pid }),
        (stream, vec(any::<u8>(), 0..300)).prop_map(|(to, bytes)| Event::Output(to, bytes)),
        any::<i32>().prop_map(|code| Event::Ended(EndEvent::by_code(code))),
        (1..128).prop_map(|signal| Event::Ended(EndEvent::by_signal(signal))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_event_comes_back(event in event()) {
        let message = serde_json::to_vec(&EventResponse::from(event.clone())).unwrap();
        prop_assert_eq!(Event::parse(&message).unwrap(), Some(event));
    }

    #[test]
    fn output_is_base64(bytes in vec(any::<u8>(), 0..300), kind in 0..3_usize) {
        let name = ["stdout", "stderr", "pty"][kind];
        let stream = [OutputStream::Stdout, OutputStream::Stderr, OutputStream::Pty][kind];
        let message = json!({ "event": { "data": { name: STANDARD.encode(&bytes) } } });
        let event = Event::parse(message.to_string().as_bytes()).unwrap();
        prop_assert_eq!(event, Some(Event::Output(stream, bytes)));
    }

    #[test]
    fn any_message_is_an_event_or_refused(
        message in prop_oneof![
            3 => nearly_event().prop_map(|value| value.to_string().into_bytes()),
            1 => vec(any::<u8>(), 0..100),
        ],
    ) {
        // Whatever it says, there is a status that a shell can end with.
        if let Ok(Some(Event::Ended(end))) = Event::parse(&message) {
            let status = end.shell_status();
            prop_assert!(end.signal().is_none_or(|signal| status == 128 + signal));
        }
    }
}
