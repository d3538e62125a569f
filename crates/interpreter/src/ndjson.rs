//! The lines of an answer to `/execute`: one JSON object each, in ASCII.
//!
//! ASCII, because one of the SDKs decodes each network chunk on its own: a character that is split
//! over two chunks would be lost.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::{
    clock,
    kernel::{Event, Failure, Stream},
    mime::{Bundle, Value},
};

pub(crate) fn event(event: &Event) -> Bytes {
    match event {
        Event::Accepted(count) => {
            Line::new("number_of_executions").number("execution_count", *count)
        }
        Event::Text(stream, text) => {
            let kind = match stream {
                Stream::Stdout => "stdout",
                Stream::Stderr => "stderr",
            };
            Line::new(kind)
                .text("text", text)
                .text("timestamp", &clock::now())
        }
        Event::Result(bundle, main) => result(bundle, *main),
        Event::Failed(failure) => return error(failure),
    }
    .end()
}

pub(crate) fn error(failure: &Failure) -> Bytes {
    Line::new("error")
        .text("name", &failure.name)
        .text("value", &failure.value)
        .text("traceback", &failure.traceback)
        .end()
}

pub(crate) fn keepalive() -> Bytes {
    Bytes::from_static(b"{\"type\": \"keepalive\"}\n")
}

pub(crate) fn end() -> Bytes {
    Bytes::from_static(b"{\"type\": \"end_of_execution\"}\n")
}

fn result(bundle: &Bundle, main: bool) -> Line {
    let fields = bundle.fields();
    let mut line = Line::new("result");
    for (name, value) in &fields.known {
        line = match value {
            Value::Text(text) => line.text(name, text),
            // Absent and null are the same to the clients, but only at the top.
            Value::Raw(raw) if raw.get() == "null" => line,
            Value::Raw(raw) => line.raw(name, raw),
        };
    }
    line.key("extra");
    line.0.push(b'{');
    for (index, (mime, raw)) in fields.extra.iter().enumerate() {
        if index > 0 {
            line.0.extend_from_slice(b", ");
        }
        line.string(mime);
        line.0.extend_from_slice(b": ");
        line.verbatim(raw);
    }
    line.0.push(b'}');
    line.key("is_main_result");
    line.0
        .extend_from_slice(if main { b"true" } else { b"false" });
    line
}

struct Line(Vec<u8>);

impl Line {
    fn new(kind: &str) -> Self {
        let mut line = Self(b"{\"type\": ".to_vec());
        line.string(kind);
        line
    }

    fn key(&mut self, name: &str) {
        self.0.extend_from_slice(b", ");
        self.string(name);
        self.0.extend_from_slice(b": ");
    }

    fn text(mut self, name: &str, text: &str) -> Self {
        self.key(name);
        self.0.reserve(text.len() + text.len() / 16);
        self.string(text);
        self
    }

    fn number(mut self, name: &str, number: u64) -> Self {
        self.key(name);
        self.0.extend_from_slice(number.to_string().as_bytes());
        self
    }

    fn raw(mut self, name: &str, raw: &RawValue) -> Self {
        self.key(name);
        self.verbatim(raw);
        self
    }

    fn end(mut self) -> Bytes {
        self.0.extend_from_slice(b"}\n");
        self.0.into()
    }

    fn string(&mut self, text: &str) {
        self.0.push(b'"');
        for character in text.chars() {
            match character {
                '"' => self.0.extend_from_slice(b"\\\""),
                '\\' => self.0.extend_from_slice(b"\\\\"),
                '\n' => self.0.extend_from_slice(b"\\n"),
                '\r' => self.0.extend_from_slice(b"\\r"),
                '\t' => self.0.extend_from_slice(b"\\t"),
                ' '..='\u{7e}' => self.0.push(character as u8),
                other => self.escape(other),
            }
        }
        self.0.push(b'"');
    }

    /// JSON that was parsed before. A character outside ASCII can only be inside a string there, and
    /// a line break only outside of one.
    fn verbatim(&mut self, raw: &RawValue) {
        for character in raw.get().chars() {
            match character {
                '\n' | '\r' => self.0.push(b' '),
                ascii if ascii.is_ascii() => self.0.push(ascii as u8),
                other => self.escape(other),
            }
        }
    }

    fn escape(&mut self, character: char) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for unit in character.encode_utf16(&mut [0; 2]) {
            self.0.extend_from_slice(b"\\u");
            for shift in [12, 8, 4, 0] {
                self.0.push(DIGITS[usize::from(*unit >> shift) & 0xf]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(line: &Bytes) -> serde_json::Value {
        assert!(line.is_ascii());
        assert!(!line[..line.len() - 1].contains(&b'\n'));
        assert!(line.ends_with(b"\n"));
        serde_json::from_slice(line).unwrap()
    }

    fn text_of(text: &str) -> serde_json::Value {
        parse(&event(&Event::Text(Stream::Stdout, text.to_owned())))["text"].take()
    }

    #[test]
    fn every_character_survives_as_ascii_on_one_line() {
        let all = "\0\u{1}\u{1f} \"\\\n\r\t\u{7f}\u{80}é漢\u{2028}\u{ffff}😀";
        assert_eq!(text_of(all), all);
    }

    #[test]
    fn astral_characters_become_surrogate_pairs() {
        let line = event(&Event::Text(Stream::Stderr, "😀".to_owned()));
        let line = String::from_utf8(line.to_vec()).unwrap();
        assert!(line.contains(r"\ud83d\ude00"), "{line}");
    }

    #[test]
    fn a_result_always_has_extra_and_tells_whether_it_is_the_main_one() {
        let line = parse(&event(&Event::Result(Bundle::default(), true)));
        assert_eq!(
            line,
            json!({"type": "result", "extra": {}, "is_main_result": true})
        );
    }

    #[test]
    fn nested_values_keep_their_order_nulls_and_numbers() {
        let bundle = Bundle::parse(
            "{\"e2b/chart\": {\"z\": null,\n\"a\": 1e400, \"é\": 12345678901234567890123},\
             \"application/json\": null, \"x/y\": [\"漢\"]}",
        );
        let line = event(&Event::Result(bundle, false));
        assert!(line.is_ascii());
        let line = String::from_utf8(line.to_vec()).unwrap();
        assert_eq!(
            line,
            "{\"type\": \"result\", \"chart\": {\"z\": null, \"a\": 1e400, \
             \"\\u00e9\": 12345678901234567890123}, \"extra\": {\"x/y\": [\"\\u6f22\"]}, \
             \"is_main_result\": false}\n"
        );
    }

    #[test]
    fn the_text_of_a_string_value_shows_bare() {
        let bundle = Bundle::parse(r#"{"text/plain": "'hi'"}"#);
        assert_eq!(parse(&event(&Event::Result(bundle, true)))["text"], "hi");
    }

    #[test]
    fn the_marks_are_lines_of_their_own() {
        assert_eq!(parse(&keepalive()), json!({"type": "keepalive"}));
        assert_eq!(parse(&end()), json!({"type": "end_of_execution"}));
        let line = parse(&event(&Event::Accepted(3)));
        assert_eq!(
            line,
            json!({"type": "number_of_executions", "execution_count": 3})
        );
    }
}
