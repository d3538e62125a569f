//! What the kernel sends over a netlink socket.

use rtnetlink::packet_core::NetlinkBuffer;

const HEADER: usize = 16;

/// Kind, sequence number and body of each message in a datagram. What is cut off is left out.
pub(crate) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = (u16, u32, &[u8])> {
    std::iter::from_fn(move || {
        let header = NetlinkBuffer::new_checked(datagram).ok()?;
        let (kind, sequence) = (header.message_type(), header.sequence_number());
        let length = header.length() as usize;
        let body = datagram.get(HEADER..length)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, sequence, body))
    })
}

/// The negative errno of an answer; zero is an acknowledgement.
pub(crate) fn refusal(body: &[u8]) -> Option<std::io::Error> {
    let code = i32::from_ne_bytes(*body.first_chunk()?);
    (code != 0).then(|| std::io::Error::from_raw_os_error(code.wrapping_neg()))
}
