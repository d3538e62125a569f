//! The descriptive headers of a download: its name and its type.

use std::fmt::Write;

/// `inline; filename=…`, quoted or encoded where the name needs it.
pub(super) fn content_disposition(name: &str) -> String {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&b);
    if !name.is_empty() && name.bytes().all(token) {
        return format!("inline; filename={name}");
    }
    if name.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
        return format!("inline; filename=\"{escaped}\"");
    }
    let mut text = "inline; filename*=utf-8''".to_owned();
    for byte in name.bytes() {
        if token(byte) {
            text.push(char::from(byte));
        } else {
            let _infallible = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// By the name's extension; `None` when that says nothing.
pub(super) fn by_extension(name: &str) -> Option<&'static str> {
    let extension = name.rsplit_once('.')?.1.to_ascii_lowercase();
    Some(match extension.as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "xml" => "text/xml; charset=utf-8",
        "txt" | "log" => "text/plain; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "md" => "text/markdown; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "pdf" => "application/pdf",
        "wasm" => "application/wasm",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "tar" => "application/x-tar",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        _ => return None,
    })
}

/// By the first bytes.
pub(super) fn by_content(start: &[u8]) -> &'static str {
    const MAGIC: &[(&[u8], &str)] = &[
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF8", "image/gif"),
        (b"%PDF-", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x1f\x8b\x08", "application/x-gzip"),
        (b"\0asm", "application/wasm"),
    ];
    if let Some((_, kind)) = MAGIC.iter().find(|(magic, _)| start.starts_with(magic)) {
        return kind;
    }
    let control = |b: &u8| *b < 0x20 && !matches!(*b, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b);
    if start.iter().any(control) {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_only_where_needed() {
        assert_eq!(content_disposition("a.txt"), "inline; filename=a.txt");
        assert_eq!(
            content_disposition("a \"b\""),
            r#"inline; filename="a \"b\"""#
        );
        assert_eq!(
            content_disposition("é\r\n"),
            "inline; filename*=utf-8''%C3%A9%0D%0A"
        );
    }

    #[test]
    fn content_is_recognised() {
        assert_eq!(by_extension("x.JSON"), Some("application/json"));
        assert_eq!(by_extension("json"), None);
        assert_eq!(by_content(b"hello"), "text/plain; charset=utf-8");
        assert_eq!(by_content(b"\0\x01"), "application/octet-stream");
    }
}
