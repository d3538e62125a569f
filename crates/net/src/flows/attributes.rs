//! Netlink's attributes: length, kind, and a value that is filled up to a multiple of four bytes.

const HEADER: usize = 4;
/// `NLA_F_NESTED`: the value is made of attributes.
const NESTED: u16 = 1 << 15;
const KIND: u16 = 0x3fff;

pub(crate) fn plain(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(HEADER + value.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(HEADER + value.len().next_multiple_of(4));
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub(super) fn nested(kind: u16, attributes: &[u8]) -> Vec<u8> {
    plain(kind | NESTED, attributes)
}

/// The value of the first attribute of a kind, and all of the attribute.
pub(crate) fn of_kind(mut attributes: &[u8], wanted: u16) -> Option<(&[u8], &[u8])> {
    while let Some(&[a, b, c, d]) = attributes.first_chunk() {
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = attributes.get(HEADER..length)?;
        let whole = length.next_multiple_of(4).min(attributes.len());
        if u16::from_ne_bytes([c, d]) & KIND == wanted {
            return Some((value, &attributes[..whole]));
        }
        attributes = &attributes[whole..];
    }
    None
}
