//! Reads request bodies and says what is wrong with them the way the reference does: status 422 and
//! a list of {type, loc, msg, input}.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::reply::Failure;

/// A JSON object whose fields are taken one by one; every mistake is collected.
#[derive(Debug)]
pub(crate) struct Fields {
    whole: Map<String, Value>,
    mistakes: Vec<Value>,
}

impl Fields {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Failure> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Err(refusal(&[mistake(
                "missing",
                json!(["body"]),
                "Field required",
                &Value::Null,
            )]));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(whole)) => Ok(Self {
                whole,
                mistakes: Vec::new(),
            }),
            Ok(other) => Err(refusal(&[mistake(
                "model_attributes_type",
                json!(["body"]),
                "Input should be a valid dictionary or object to extract fields from",
                &other,
            )])),
            Err(error) => Err(refusal(&[json!({
                "type": "json_invalid",
                "loc": ["body", offset(body, &error)],
                "msg": "JSON decode error",
                "input": {},
                "ctx": {"error": error.to_string()},
            })])),
        }
    }

    pub(crate) fn required_text(&mut self, name: &str) -> String {
        match self.whole.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => {
                let mistake = not_text(json!(["body", name]), other);
                self.mistakes.push(mistake);
                String::new()
            }
            None => {
                let whole = Value::Object(self.whole.clone());
                self.mistakes.push(mistake(
                    "missing",
                    json!(["body", name]),
                    "Field required",
                    &whole,
                ));
                String::new()
            }
        }
    }

    /// Null and empty are absent.
    pub(crate) fn optional_text(&mut self, name: &str) -> Option<String> {
        match self.whole.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => (!text.is_empty()).then(|| text.clone()),
            Some(other) => {
                let mistake = not_text(json!(["body", name]), other);
                self.mistakes.push(mistake);
                None
            }
        }
    }

    pub(crate) fn optional_texts(&mut self, name: &str) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        match self.whole.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Object(entries)) => {
                for (key, value) in entries {
                    match value {
                        Value::String(text) => {
                            texts.insert(key.clone(), text.clone());
                        }
                        other => self
                            .mistakes
                            .push(not_text(json!(["body", name, key]), other)),
                    }
                }
            }
            Some(other) => self.mistakes.push(mistake(
                "dict_type",
                json!(["body", name]),
                "Input should be a valid dictionary",
                other,
            )),
        }
        texts
    }

    pub(crate) fn finish(self) -> Result<(), Failure> {
        if self.mistakes.is_empty() {
            Ok(())
        } else {
            Err(refusal(&self.mistakes))
        }
    }
}

fn refusal(mistakes: &[Value]) -> Failure {
    Failure::json(
        StatusCode::UNPROCESSABLE_ENTITY,
        json!({"detail": mistakes}),
    )
}

#[expect(clippy::needless_pass_by_value, reason = "made where it is passed")]
fn mistake(kind: &str, place: Value, text: &str, input: &Value) -> Value {
    json!({"type": kind, "loc": place, "msg": text, "input": input})
}

fn not_text(place: Value, input: &Value) -> Value {
    mistake(
        "string_type",
        place,
        "Input should be a valid string",
        input,
    )
}

fn offset(body: &[u8], error: &serde_json::Error) -> usize {
    let before: usize = body
        .split_inclusive(|byte| *byte == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    before + error.column().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn refused(failure: Failure) -> Value {
        let response = failure.into_response();
        assert_eq!(response.status(), 422);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    #[tokio::test]
    async fn a_missing_field_shows_the_whole_input() {
        let mut fields = Fields::parse(br#"{"a": 1}"#).unwrap();
        fields.required_text("code");
        assert_eq!(
            refused(fields.finish().unwrap_err()).await,
            json!({"detail": [{"type": "missing", "loc": ["body", "code"],
                "msg": "Field required", "input": {"a": 1}}]})
        );
    }

    #[tokio::test]
    async fn every_mistake_is_listed_with_its_place() {
        let mut fields =
            Fields::parse(br#"{"code": 5, "env_vars": {"A": 1, "B": "x"}, "language": []}"#)
                .unwrap();
        fields.required_text("code");
        fields.optional_texts("env_vars");
        fields.optional_text("language");
        let answer = refused(fields.finish().unwrap_err()).await;
        let places: Vec<&Value> = answer["detail"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mistake| &mistake["loc"])
            .collect();
        assert_eq!(
            places,
            [
                &json!(["body", "code"]),
                &json!(["body", "env_vars", "A"]),
                &json!(["body", "language"])
            ]
        );
    }

    #[tokio::test]
    async fn bodies_that_are_no_objects_are_refused() {
        for (body, kind) in [
            (&b""[..], "missing"),
            (b"[]", "model_attributes_type"),
            (b"{x", "json_invalid"),
            (b"\xff", "json_invalid"),
        ] {
            let answer = refused(Fields::parse(body).unwrap_err()).await;
            assert_eq!(answer["detail"][0]["type"], kind);
        }
    }

    #[test]
    fn null_and_empty_are_absent() {
        let mut fields = Fields::parse(br#"{"a": null, "b": "", "c": "x"}"#).unwrap();
        assert_eq!(fields.optional_text("a"), None);
        assert_eq!(fields.optional_text("b"), None);
        assert_eq!(fields.optional_text("c"), Some("x".to_owned()));
        assert!(fields.finish().is_ok());
    }
}
