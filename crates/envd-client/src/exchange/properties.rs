//! What holds of whatever a sandbox answers.

use http_body_util::{BodyExt, Empty};
use proptest::{collection::vec, prelude::*};
use tokio::io::AsyncWriteExt;

use super::*;

/// An answer that is nearly one of HTTP's.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let head = prop_oneof![
        Just("HTTP/1.1 200 OK\r\n"),
        Just("HTTP/1.1 500 Internal Server Error\r\n"),
        Just("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\n"),
        Just("HTTP/1.1 200"),
        Just("HTTP/9.9 200 OK\r\n"),
        Just(""),
    ];
    let fields = prop_oneof![
        Just("content-length: 5\r\n\r\n"),
        Just("content-length: 99999999999999999999\r\n\r\n"),
        Just("content-length: 1\r\ncontent-length: 2\r\n\r\n"),
        Just("content-length: 300000\r\n\r\n"),
        Just("transfer-encoding: chunked\r\n\r\n"),
        Just("connection: upgrade\r\nupgrade: x\r\n\r\n"),
        Just("\r\n"),
        Just("a b: c\r\n\r\n"),
    ];
    let body = prop_oneof![
        vec(any::<u8>(), 0..50),
        Just(b"5\r\nhello\r\n0\r\n\r\n".to_vec()),
        Just(b"ffffffffffffffff\r\nx".to_vec()),
        Just(br#"{"code":"not_found","message":"no"}"#.to_vec()),
    ];
    (head, fields, body)
        .prop_map(|(head, fields, body)| [head.as_bytes(), fields.as_bytes(), &body].concat())
}

async fn ask(answer: Vec<u8>) -> Result<Bytes> {
    let (ours, mut theirs) = tokio::io::duplex(64 << 10);
    theirs.write_all(&answer).await.unwrap();
    theirs.shutdown().await.unwrap();
    let body: Body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let request = Request::get("/").header("host", "x").body(body).unwrap();
    let exchange = send(Box::new(ours), request, "asking").await?;
    exchange.accepted("asking").await?.whole("asking").await
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_answer_is_a_short_body_or_an_error_that_says_whose_fault_it_is(answer in hostile()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let length = answer.len();
        match runtime.block_on(ask(answer)) {
            Ok(body) => prop_assert!(body.len() <= length.min(MAX_ANSWER)),
            Err(error) => prop_assert!(
                matches!(
                    error,
                    Error::CutOff { .. } | Error::Protocol(_) | Error::Refused { .. }
                ),
                "{error:?}"
            ),
        }
    }

    #[test]
    fn any_refusal_has_a_short_code_and_message(
        status in 300_u16..600,
        body in prop_oneof![
            vec(any::<u8>(), 0..6000),
            (".{0,30}", ".{0,6000}").prop_map(|(code, message)| {
                serde_json::json!({ "code": code, "message": message }).to_string().into_bytes()
            }),
            any::<i64>().prop_map(|code| {
                format!(r#"{{"code":{code},"message":"m"}}"#).into_bytes()
            }),
        ],
    ) {
        let Error::Refused { code, message } = refusal(StatusCode::from_u16(status).unwrap(), &body)
        else {
            return Err(TestCaseError::fail("not a refusal"));
        };
        prop_assert!(code.len() <= 4 << 10 && message.len() <= 4 << 10);
    }
}
