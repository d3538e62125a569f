//! The handshake: greetings of 64 bytes, then one `READY` command each way.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Error, SocketType, frame};

const LENGTH: usize = 64;

pub(super) async fn exchange<R, W>(
    source: &mut R,
    sink: &mut W,
    kind: SocketType,
) -> Result<(), Error>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    sink.write_all(&ours()).await?;
    sink.flush().await?;
    let mut theirs = [0; LENGTH];
    source.read_exact(&mut theirs).await?;
    check(&theirs)?;

    sink.write_all(&frame::encode_command(&ready(kind))).await?;
    sink.flush().await?;
    let answer = frame::read_command(source).await?;
    if !answer.starts_with(b"\x05READY") {
        return Err(Error::Protocol("the peer refused the handshake"));
    }
    Ok(())
}

fn ours() -> [u8; LENGTH] {
    let mut greeting = [0; LENGTH];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3; // version 3.0: subscriptions travel as messages
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

fn check(greeting: &[u8; LENGTH]) -> Result<(), Error> {
    if greeting[0] != 0xff || greeting[9] != 0x7f {
        return Err(Error::Protocol("no ZMTP signature"));
    }
    if greeting[10] < 3 {
        return Err(Error::Protocol("an older version"));
    }
    let mut mechanism = [0; 20];
    mechanism[..4].copy_from_slice(b"NULL");
    if greeting[12..32] != mechanism {
        return Err(Error::Protocol("a security mechanism is asked for"));
    }
    Ok(())
}

fn ready(kind: SocketType) -> Vec<u8> {
    let name: &[u8] = match kind {
        SocketType::Dealer => b"DEALER",
        SocketType::Subscriber => b"SUB",
    };
    let mut body = b"\x05READY".to_vec();
    put_property(&mut body, b"Socket-Type", name);
    put_property(&mut body, b"Identity", b"");
    body
}

fn put_property(body: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    body.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    body.extend_from_slice(name);
    body.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
    body.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_greeting_is_acceptable() {
        assert!(check(&ours()).is_ok());
    }

    #[test]
    fn other_protocols_versions_and_mechanisms_are_refused() {
        let mut http = [b'H'; LENGTH];
        http[9] = 0x7f;
        let mut old = ours();
        old[10] = 1;
        let mut plain = ours();
        plain[12..17].copy_from_slice(b"PLAIN");
        for greeting in [http, old, plain] {
            assert!(matches!(check(&greeting), Err(Error::Protocol(_))));
        }
    }

    #[tokio::test]
    async fn two_ends_agree() {
        let (near, far) = tokio::io::duplex(1024);
        let (mut near_source, mut near_sink) = tokio::io::split(near);
        let (mut far_source, mut far_sink) = tokio::io::split(far);
        let (one, two) = tokio::join!(
            exchange(&mut near_source, &mut near_sink, SocketType::Dealer),
            exchange(&mut far_source, &mut far_sink, SocketType::Subscriber),
        );
        assert!(one.is_ok() && two.is_ok());
    }
}
