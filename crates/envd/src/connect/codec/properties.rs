//! What holds of whatever a client sends as messages.

use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
};

use serde_json::Value;

use super::*;
use crate::{
    connect::Code,
    proto::{
        filesystem::{EntryInfo, ListDirRequest, Timestamp},
        process::{
            DataEvent, EndEvent, EventResponse, ProcessConfig, ProcessEvent, ProcessSelector, Pty,
            PtySize, SendSignalRequest, StartRequest,
        },
    },
};

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/$ ]{0,12}", ".{0,8}"]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..50)
}

fn config() -> impl Strategy<Value = ProcessConfig> {
    let environment = btree_map(text(), text(), 0..3);
    (text(), vec(text(), 0..3), environment, option::of(text())).prop_map(
        |(cmd, args, envs, cwd)| ProcessConfig {
            cmd,
            args,
            envs,
            cwd,
        },
    )
}

fn start_request() -> impl Strategy<Value = StartRequest> {
    let size = (any::<u32>(), any::<u32>()).prop_map(|(cols, rows)| PtySize { cols, rows });
    let pty = option::of(size).prop_map(|size| Pty { size });
    let rest = (option::of(text()), option::of(any::<bool>()));
    (option::of(config()), option::of(pty), rest).prop_map(|(process, pty, (tag, stdin))| {
        StartRequest {
            process,
            pty,
            tag,
            stdin,
        }
    })
}

fn event() -> impl Strategy<Value = EventResponse> {
    let data = (
        option::of(bytes()),
        option::of(bytes()),
        option::of(bytes()),
    )
        .prop_map(|(stdout, stderr, pty)| DataEvent {
            stdout,
            stderr,
            pty,
        });
    let end = (any::<i32>(), any::<bool>(), text(), option::of(text())).prop_map(
        |(exit_code, exited, status, error)| EndEvent {
            exit_code,
            exited,
            status,
            error,
        },
    );
    (option::of(data), option::of(end)).prop_map(|(data, end)| EventResponse {
        event: Some(ProcessEvent {
            data,
            end,
            ..ProcessEvent::default()
        }),
    })
}

fn entry() -> impl Strategy<Value = EntryInfo> {
    // From the year 1 to the year 9999, which is what the format of times has.
    let time = option::of((-62_135_596_800..253_402_300_800_i64, 0..1_000_000_000))
        .prop_map(|time| time.map(|(seconds, nanos)| Timestamp { seconds, nanos }));
    let numbers = (any::<i32>(), any::<i64>(), any::<u32>());
    (text(), numbers, time, btree_map(text(), text(), 0..3)).prop_map(
        |(name, (kind, size, mode), modified_time, metadata)| EntryInfo {
            name,
            kind,
            size,
            mode,
            modified_time,
            metadata,
            ..EntryInfo::default()
        },
    )
}

fn comes_back<M: Wire + PartialEq + std::fmt::Debug>(message: &M) -> Result<(), TestCaseError> {
    for codec in [Codec::Json, Codec::Proto] {
        let mut bytes = Vec::new();
        codec.encode(message, &mut bytes).unwrap();
        prop_assert_eq!(&codec.decode::<M>(&bytes).unwrap(), message);
    }
    Ok(())
}

fn is_refused_as_the_clients_mistake<M: Wire>(bytes: &[u8]) -> Result<(), TestCaseError> {
    for codec in [Codec::Json, Codec::Proto] {
        if let Err(error) = codec.decode::<M>(bytes) {
            prop_assert_eq!(error.code, Code::InvalidArgument);
        }
    }
    Ok(())
}

/// JSON with the names that messages have, and any bytes.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
        "-?[0-9]{1,20}".prop_map(Value::from),
    ];
    let names = proptest::sample::select(vec![
        "process",
        "cmd",
        "args",
        "envs",
        "pty",
        "size",
        "cols",
        "pid",
        "signal",
        "depth",
        "path",
        "type",
        "modifiedTime",
        "stdin",
    ]);
    let json = leaf.prop_recursive(4, 16, 3, move |inner| {
        let object = vec((names.clone(), inner.clone()), 0..3).prop_map(|pairs| {
            let pairs = pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value));
            Value::Object(pairs.collect())
        });
        prop_oneof![object, vec(inner, 0..3).prop_map(Value::Array)]
    });
    prop_oneof![
        3 => json.prop_map(|value| value.to_string().into_bytes()),
        1 => vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_come_back_in_both_encodings(
        request in start_request(),
        event in event(),
        entry in entry(),
        signal in any::<i32>(),
        pid in any::<u32>(),
    ) {
        comes_back(&request)?;
        comes_back(&event)?;
        comes_back(&entry)?;
        let process = Some(ProcessSelector { pid: Some(pid), tag: None });
        comes_back(&SendSignalRequest { process, signal })?;
    }

    #[test]
    fn any_bytes_are_a_message_or_the_clients_mistake(bytes in hostile()) {
        is_refused_as_the_clients_mistake::<StartRequest>(&bytes)?;
        is_refused_as_the_clients_mistake::<SendSignalRequest>(&bytes)?;
        is_refused_as_the_clients_mistake::<ListDirRequest>(&bytes)?;
        is_refused_as_the_clients_mistake::<EntryInfo>(&bytes)?;
    }
}
