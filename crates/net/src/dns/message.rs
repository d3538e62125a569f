//! The little of DNS's wire format that a forwarder needs. It passes messages on as they are: what
//! it does not read cannot confuse it.

/// Identifier, flags and four counts.
pub(super) const HEADER: usize = 12;
const RESPONSE: u8 = 0x80;
const RECURSION: u8 = 0x01;
const SERVER_FAILURE: u8 = 2;
const REFUSED: u8 = 5;
const NO_ERROR: u8 = 0;
/// Class of records.
const INTERNET: u16 = 1;

/// A plausible question: short enough, not itself an answer, with one question in it.
pub(super) fn is_query(message: &[u8]) -> bool {
    message.len() >= HEADER
        && message[2] & RESPONSE == 0
        && u16::from_be_bytes([message[4], message[5]]) == 1
        && question(message).is_some()
}

pub(super) fn id(message: &[u8]) -> [u8; 2] {
    [message[0], message[1]]
}

pub(super) fn set_id(message: &mut [u8], id: [u8; 2]) {
    message[..2].copy_from_slice(&id);
}

/// Whether the server does not want to answer, which says nothing of the name.
pub(super) fn is_refusal(answer: &[u8]) -> bool {
    answer.get(3).is_some_and(|flags| flags & 0x0f == REFUSED)
}

/// Whether this is the answer to that query: same identifier, same question. Who guesses the port
/// must guess these too.
pub(super) fn answers(answer: &[u8], query: &[u8]) -> bool {
    answer.len() >= HEADER
        && answer[2] & RESPONSE != 0
        && id(answer) == id(query)
        && match (question(answer), question(query)) {
            (Some(echoed), Some(asked)) => echoed.eq_ignore_ascii_case(asked),
            // A server that could not read the query echoes no question.
            (None, _) => answer[4..6] == [0, 0],
            _ => false,
        }
}

/// "The server failed": so that programs inside fail at once instead of waiting.
pub(super) fn failure(query: &[u8]) -> Vec<u8> {
    empty_answer(query, SERVER_FAILURE)
}

/// The name exists, and has no records of this type.
pub(super) fn no_records(query: &[u8]) -> Vec<u8> {
    empty_answer(query, NO_ERROR)
}

fn empty_answer(query: &[u8], code: u8) -> Vec<u8> {
    let asked = question(query).unwrap_or_default();
    let mut answer = Vec::with_capacity(HEADER + asked.len());
    answer.extend_from_slice(&query[..2]);
    answer.push(RESPONSE | (query[2] & (0x78 | RECURSION)));
    answer.push(0x80 | code);
    answer.extend_from_slice(&[0, u8::from(!asked.is_empty()), 0, 0, 0, 0, 0, 0]);
    answer.extend_from_slice(asked);
    answer
}

/// The name that is asked for, in the form in which names are compared, and the type of records.
/// The name is `None` when no host can have it, and so is the type of another class than the
/// internet's: both are on no list.
pub(super) fn asked(query: &[u8]) -> Option<(Option<String>, u16)> {
    let question = question(query)?;
    let (labels, kind) = question.split_last_chunk::<4>()?;
    let [kind_high, kind_low, class_high, class_low] = *kind;
    let mut name = String::new();
    let mut rest = labels;
    let mut plain = u16::from_be_bytes([class_high, class_low]) == INTERNET;
    while let Some((length, after)) = rest.split_first()
        && *length > 0
    {
        let (label, after) = after.split_at_checked((*length).into())?;
        // A dot within a label would make one name look like another.
        plain &= label.is_ascii() && !label.contains(&b'.');
        if !name.is_empty() {
            name.push('.');
        }
        name.extend(label.iter().copied().map(char::from));
        rest = after;
    }
    let name = Some(name).filter(|_| plain);
    let name = name.and_then(|name| soulbox_types::host_name(&name));
    Some((name, u16::from_be_bytes([kind_high, kind_low])))
}

/// The first question's bytes: labels, a zero, type and class. No compression in a question.
fn question(message: &[u8]) -> Option<&[u8]> {
    if message.get(4..6)? == [0, 0] {
        return None;
    }
    let mut at = HEADER;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1 + length;
        match length {
            0 => return message.get(HEADER..at + 4),
            1..=63 if at < HEADER + 255 => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &[&str]) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name {
            message.push(u8::try_from(label.len()).unwrap());
            message.extend_from_slice(label.as_bytes());
        }
        message.extend_from_slice(&[0, 0, 1, 0, 1]);
        message
    }

    #[test]
    fn a_failure_answers_its_query() {
        let query = query(&["example", "org"]);
        assert!(is_query(&query));
        let failure = failure(&query);
        assert!(answers(&failure, &query));
        assert!(!is_query(&failure));
        assert_eq!(failure[3] & 0x0f, SERVER_FAILURE);
    }

    #[test]
    fn what_is_asked_for_is_read() {
        let mut asking = query(&["Example", "org"]);
        assert_eq!(asked(&asking), Some((Some("example.org".to_owned()), 1)));
        let class = asking.len() - 1;
        asking[class] = 3;
        assert_eq!(asked(&asking), Some((None, 1)), "of another class");
        for labels in [&["exa.mple", "org"][..], &["exämple", "org"], &["a b"], &[]] {
            assert_eq!(asked(&query(labels)), Some((None, 1)), "{labels:?}");
        }
        let none = no_records(&query(&["example", "org"]));
        assert!(answers(&none, &query(&["example", "org"])));
        assert_eq!(none[3] & 0x0f, NO_ERROR);
    }

    #[test]
    fn answers_to_other_questions_are_not_taken() {
        let (one, mut other) = (query(&["a", "test"]), failure(&query(&["b", "test"])));
        assert!(!answers(&other, &one));
        other = failure(&one);
        set_id(&mut other, [0, 0]);
        assert!(!answers(&other, &one));
    }

    #[test]
    fn broken_messages_are_no_queries_and_never_panic() {
        let whole = query(&["example", "org"]);
        for cut in 0..whole.len() {
            assert!(!is_query(&whole[..cut]));
        }
        let mut endless = whole[..HEADER].to_vec();
        endless.extend([63; 4000]);
        assert!(!is_query(&endless));
        let mut compressed = whole[..HEADER].to_vec();
        compressed.extend([0xc0, 0x0c, 0, 1, 0, 1]);
        assert!(!is_query(&compressed));
    }
}
