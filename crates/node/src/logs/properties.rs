//! What holds of whatever a sandbox answers when it is asked for its log.

use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::*;

fn body() -> impl Strategy<Value = Vec<u8>> {
    let field = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        ".{0,10}".prop_map(Value::from),
        Just(json!({ "a": "b" })),
    ];
    let name = proptest::sample::select(vec!["at", "level", "logger", "message", "fields", "x"]);
    let entry = vec((name, field), 0..5).prop_map(|pairs| {
        Value::Object(
            pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    });
    prop_oneof![
        4 => vec(entry, 0..4).prop_map(|entries| Value::Array(entries).to_string().into_bytes()),
        1 => vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_answer_is_a_log_or_none(
        head in prop_oneof![
            4 => Just("HTTP/1.1 200 OK\r\n\r\n"),
            1 => Just("HTTP/1.1 500 No\r\ncontent-length: 9999999\r\n\r\n"),
            1 => Just("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
            1 => Just(""),
        ],
        body in body(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let length = body.len();
        let entries = runtime.block_on(async move {
            let (ours, mut theirs) = tokio::io::duplex(64 << 10);
            theirs.write_all(head.as_bytes()).await.unwrap();
            theirs.write_all(&body).await.unwrap();
            theirs.shutdown().await.unwrap();
            from_envd(Box::new(ours), &Secret::new("x")).await
        });
        prop_assert!(entries.len() <= length);
    }
}
