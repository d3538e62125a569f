//! A port of the sandbox on a channel: `ssh -L`, `ssh -D`, editors.

use bytes::{Bytes, BytesMut};
use russh::ChannelOpenFailure;
use soulbox_client::PortStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf};

use crate::flow::{Input, Output};

/// As large as SSH's packets are.
const CHUNK: usize = 32 << 10;

/// Ports are reached on the loopback interface inside, whatever a client calls that.
pub(crate) fn is_inside(host: &str) -> bool {
    matches!(
        host,
        "localhost" | "127.0.0.1" | "::1" | "0.0.0.0" | "::" | "*" | ""
    )
}

pub(crate) fn refusal(error: &soulbox_client::Error) -> ChannelOpenFailure {
    match error {
        soulbox_client::Error::Api(api) if api.status.is_client_error() => {
            ChannelOpenFailure::AdministrativelyProhibited
        }
        _ => ChannelOpenFailure::ConnectFailed,
    }
}

/// Until both sides have finished.
pub(crate) async fn pass(port: PortStream, mut input: Input, output: Output) {
    let (from_port, mut to_port) = tokio::io::split(port);
    let up = async {
        while let Some(written) = input
            .next(async |bytes: Bytes| to_port.write_all(&bytes).await)
            .await
        {
            written?;
        }
        to_port.shutdown().await
    };
    let down = async {
        read_all(from_port, &output).await?;
        output.channel().eof().await.map_err(std::io::Error::other)
    };
    // Whatever broke, the end of the channel tells it.
    let _broken = tokio::try_join!(up, down);
    output.channel().close().await.ok();
}

async fn read_all(mut port: ReadHalf<PortStream>, output: &Output) -> std::io::Result<()> {
    let mut buffer = BytesMut::with_capacity(CHUNK);
    loop {
        buffer.reserve(CHUNK);
        if port.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        let bytes = buffer.split().freeze();
        output.write(bytes).await.map_err(std::io::Error::other)?;
    }
}
