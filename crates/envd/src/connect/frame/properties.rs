//! What holds of whatever a client sends as envelopes.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::http::sample::receive;

type Told = (Vec<Vec<u8>>, Option<Code>);

async fn all(body: Incoming, gzip: bool) -> Told {
    let mut frames = Frames::new(body, gzip);
    let mut messages = Vec::new();
    loop {
        match frames.next(IDLE).await {
            Ok(Some(message)) => messages.push(message.to_vec()),
            Ok(None) => return (messages, None),
            Err(error) => return (messages, Some(error.code)),
        }
    }
}

/// What a reader that has everything at once would say.
fn expected(mut bytes: &[u8]) -> Told {
    let mut messages = Vec::new();
    loop {
        if bytes.is_empty() {
            return (messages, None);
        }
        let Some((&[flags, a, b, c, d], rest)) = bytes.split_first_chunk() else {
            return (messages, Some(Code::InvalidArgument));
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MAX_MESSAGE {
            return (messages, Some(Code::ResourceExhausted));
        }
        let Some((message, rest)) = rest.split_at_checked(length) else {
            return (messages, Some(Code::InvalidArgument));
        };
        if flags & END_OF_STREAM != 0 {
            return (messages, None);
        }
        if flags & COMPRESSED != 0 {
            return (messages, Some(Code::Internal));
        }
        messages.push(message.to_vec());
        bytes = rest;
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

fn wire(flags: u8, message: &[u8]) -> Vec<u8> {
    let write = |to: &mut Vec<u8>| {
        to.extend(message);
        Ok(())
    };
    envelope(flags, write).unwrap().to_vec()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Whole envelopes with any flags, and whatever else.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![6 => Just(0), 1 => any::<u8>()];
    let piece = prop_oneof![
        8 => (flags, vec(any::<u8>(), 0..40)).prop_map(|(flags, message)| wire(flags, &message)),
        1 => vec(any::<u8>(), 0..12),
    ];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_the_same_messages_and_refusal_wherever_they_are_cut(
        bytes in hostile(),
        cuts in vec(any::<Index>(), 0..10),
    ) {
        let told = receive(&cut(&bytes, &cuts), async |body| all(body, false).await);
        prop_assert_eq!(told, expected(&bytes));
    }

    #[test]
    fn compressed_messages_come_back(
        messages in vec((any::<bool>(), vec(any::<u8>(), 0..200)), 0..5),
        cuts in vec(any::<Index>(), 0..10),
    ) {
        let envelopes = messages.iter().map(|(compressed, message)| {
            if *compressed { wire(COMPRESSED, &gzip(message)) } else { wire(0, message) }
        });
        let bytes = envelopes.collect::<Vec<_>>().concat();
        let told = receive(&cut(&bytes, &cuts), async |body| all(body, true).await);
        let messages = messages.into_iter().map(|(_, message)| message).collect();
        prop_assert_eq!(told, (messages, None));
    }

    #[test]
    fn any_bytes_are_gzip_or_the_clients_mistake(
        bytes in prop_oneof![
            vec(any::<u8>(), 0..60),
            (vec(any::<u8>(), 0..100), any::<Index>(), any::<u8>()).prop_map(|(plain, at, byte)| {
                let mut bytes = gzip(&plain);
                let at = at.index(bytes.len());
                bytes[at] = byte;
                bytes
            }),
        ],
    ) {
        let refused = gunzip(&bytes).err().map(|error| error.code);
        prop_assert!(matches!(refused, None | Some(Code::InvalidArgument)));
    }
}

#[test]
fn what_expands_to_more_than_a_message_is_refused() {
    assert_eq!(
        gunzip(&gzip(&vec![0; MAX_MESSAGE])).unwrap().len(),
        MAX_MESSAGE
    );
    let error = gunzip(&gzip(&vec![0; MAX_MESSAGE + 1])).unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted);
}
