//! What holds of whatever a client sends as a form.

use hyper::body::Incoming;
use proptest::{collection::vec, option, prelude::*, sample::Index};

use super::*;
use crate::http::sample::receive;

/// Name, name of the file, content.
type Field = (String, Option<String>, Vec<u8>);

/// All that could be read, and why there is no more.
async fn fields(body: Incoming, boundary: String) -> (Vec<Field>, Option<Failure>) {
    let unread = Arc::<Unread>::default();
    let stream = UploadBody::new(body).into_stream(Arc::clone(&unread));
    let mut form = Multipart::new(stream, boundary);
    let mut found = Vec::new();
    loop {
        let mut field = match form.next_field().await {
            Ok(Some(field)) => field,
            Ok(None) => return (found, None),
            Err(error) => return (found, Some(multipart_failed(error))),
        };
        unread.gave_something_back();
        let name = field.name().unwrap_or_default().to_owned();
        let file_name = field.file_name().map(str::to_owned);
        let mut content = Vec::new();
        loop {
            match field.chunk().await {
                Ok(Some(chunk)) => content.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => return (found, Some(multipart_failed(error))),
            }
            unread.gave_something_back();
        }
        found.push((name, file_name, content));
    }
}

fn cut<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    ends.sort_unstable();
    ends.push(bytes.len());
    let mut start = 0;
    let piece = |end| &bytes[std::mem::replace(&mut start, end)..end];
    ends.into_iter().map(piece).collect()
}

fn form(fields: &[Field], boundary: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, file_name, content) in fields {
        let mut head = format!("--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"");
        if let Some(file_name) = file_name {
            head = format!("{head}; filename=\"{file_name}\"");
        }
        bytes.extend(head.bytes());
        bytes.extend(b"\r\n\r\n");
        bytes.extend(content);
        bytes.extend(b"\r\n");
    }
    bytes.extend(format!("--{boundary}--\r\n").bytes());
    bytes
}

const BOUNDARY: &str = "[a-zA-Z0-9'()+_,./:=?-]{8,40}";

/// Contents look like the end of a part as often as they can.
fn some_fields() -> impl Strategy<Value = Vec<Field>> {
    let content = prop_oneof![
        vec(any::<u8>(), 0..300),
        vec(proptest::sample::select(b"\r\n-ab".to_vec()), 0..60),
    ];
    vec(
        ("[a-z]{1,8}", option::of("[a-zA-Z0-9 ._/~-]{1,12}"), content),
        0..4,
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 2,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_form_comes_back_wherever_it_is_cut(
        boundary in BOUNDARY,
        sent in some_fields(),
        cuts in vec(any::<Index>(), 0..10),
    ) {
        let bytes = form(&sent, &boundary);
        let (found, refused) = receive(&cut(&bytes, &cuts), async |body| {
            fields(body, boundary).await
        });
        prop_assert_eq!(refused, None);
        prop_assert_eq!(found, sent);
    }

    #[test]
    fn a_form_that_ends_too_early_is_refused_after_what_was_whole(
        boundary in BOUNDARY,
        sent in some_fields(),
        end in any::<Index>(),
    ) {
        let bytes = form(&sent, &boundary);
        // Only what follows the last boundary may be missing.
        let end = end.index(bytes.len() - "--\r\n".len());
        let (found, refused) = receive(&[&bytes[..end]], async |body| {
            fields(body, boundary).await
        });
        prop_assert_eq!(refused.map(|failure| failure.status), Some(StatusCode::BAD_REQUEST));
        prop_assert_eq!(&found[..], &sent[..found.len()]);
    }

    #[test]
    fn any_bytes_are_a_form_or_the_clients_mistake(
        boundary in BOUNDARY,
        sent in some_fields(),
        damage in vec((any::<Index>(), any::<u8>()), 0..4),
        cuts in vec(any::<Index>(), 0..4),
    ) {
        let mut bytes = form(&sent, &boundary);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let (found, refused) = receive(&cut(&bytes, &cuts), async |body| {
            fields(body, boundary).await
        });
        prop_assert!(refused.is_none_or(|failure| failure.status == StatusCode::BAD_REQUEST));
        let content = found.iter().map(|(_, _, content)| content.len()).sum::<usize>();
        prop_assert!(content <= bytes.len());
    }

    #[test]
    fn a_boundary_is_found_or_there_is_none(
        given in BOUNDARY,
        quoted in any::<bool>(),
        before in "(; ?[a-z]{1,5}=[a-z]{0,5}){0,2}",
        hostile in ".{0,40}",
    ) {
        prop_assume!(!before.contains("boundary"));
        let written = if quoted { format!("\"{given}\"") } else { given.clone() };
        let content_type = format!("multipart/form-data{before}; boundary={written}");
        prop_assert_eq!(boundary(&content_type), Some(given));
        let found = boundary(&format!("multipart/form-data;{hostile}"));
        prop_assert!(found.is_none_or(|found| (1..=200).contains(&found.len())));
    }
}
