//! What holds of whatever comes out of a sandbox as frames.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

const MAX: usize = 1 << 20;

/// The frames up to the one that is refused, and why it is.
fn decode(pieces: &[&[u8]]) -> (Vec<Frame>, Option<BadFrame>) {
    let mut decoder = Decoder::new(MAX);
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.feed(piece);
        loop {
            match decoder.take_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

fn cut<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    ends.sort_unstable();
    ends.push(bytes.len());
    let mut start = 0;
    let piece = |end| &bytes[std::mem::replace(&mut start, end)..end];
    ends.into_iter().map(piece).collect()
}

fn wire(flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = encode(payload).unwrap().to_vec();
    bytes[0] = flags;
    bytes
}

/// Whole frames with any flags, and whatever else.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![4 => Just(0), 2 => Just(END_OF_STREAM), 1 => any::<u8>()];
    let payload = vec(any::<u8>(), 0..40);
    let piece = prop_oneof![
        6 => (flags, payload).prop_map(|(flags, payload)| wire(flags, &payload)),
        1 => vec(any::<u8>(), 0..12),
    ];
    vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_come_back_wherever_they_are_cut(
        sent in vec((any::<bool>(), vec(any::<u8>(), 0..200)), 0..8),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for (is_end, payload) in sent {
            bytes.extend(wire(if is_end { END_OF_STREAM } else { 0 }, &payload));
            let payload = Bytes::from(payload);
            expected.push(if is_end { Frame::End(payload) } else { Frame::Message(payload) });
        }
        let (frames, refused) = decode(&cut(&bytes, &cuts));
        prop_assert!(refused.is_none());
        prop_assert_eq!(frames, expected);
    }

    #[test]
    fn any_bytes_are_the_same_frames_and_refusal_wherever_they_are_cut(
        bytes in hostile(),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let (whole, refused_whole) = decode(&[&bytes]);
        let (frames, refused) = decode(&cut(&bytes, &cuts));
        prop_assert_eq!(&frames, &whole);
        prop_assert_eq!(refused, refused_whole);
        let payload = |frame: &Frame| match frame {
            Frame::Message(payload) | Frame::End(payload) => payload.len() + HEADER,
        };
        prop_assert!(whole.iter().map(payload).sum::<usize>() <= bytes.len());
    }

    #[test]
    fn a_header_alone_says_whether_its_frame_is_taken(
        flags in prop_oneof![Just(0), Just(END_OF_STREAM), any::<u8>()],
        length in prop_oneof![any::<u32>(), 0..2 * u32::try_from(MAX).unwrap()],
    ) {
        let mut header = vec![flags];
        header.extend(length.to_be_bytes());
        let fits = matches!(flags, 0 | END_OF_STREAM) && length as usize <= MAX;
        let (frames, refused) = decode(&[&header]);
        prop_assert_eq!(frames.len(), usize::from(fits && length == 0));
        prop_assert_eq!(refused.is_none(), fits);
    }
}
