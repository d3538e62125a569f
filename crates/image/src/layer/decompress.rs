//! The compression of a layer, by its first bytes; media types are often wrong.

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;

use super::LayerError;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Frames that carry no data, which seekable zstd files may start with: 0x50 to 0x5f, then this.
const ZSTD_SKIPPABLE: &[u8] = &[0x2a, 0x4d, 0x18];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const BZIP2: &[u8] = b"BZh";
/// zstd may ask for as much memory as its window is large: 128 MiB, its own tools' limit.
const LARGEST_WINDOW: u32 = 27;

pub(crate) fn decompress<'a>(
    mut input: impl BufRead + Send + 'a,
) -> Result<Box<dyn Read + Send + 'a>, LayerError> {
    let start = input
        .fill_buf()
        .map_err(|error| LayerError::reading(&error))?;
    if start.starts_with(GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(input)));
    }
    let skippable = start.first().is_some_and(|byte| byte & 0xf0 == 0x50)
        && start
            .get(1..)
            .is_some_and(|rest| rest.starts_with(ZSTD_SKIPPABLE));
    if start.starts_with(ZSTD) || skippable {
        let decoder = zstd_decoder(input).map_err(|error| LayerError::reading(&error))?;
        return Ok(Box::new(decoder));
    }
    if start.starts_with(XZ) {
        return Err(LayerError::Compression("xz"));
    }
    if start.starts_with(BZIP2) {
        return Err(LayerError::Compression("bzip2"));
    }
    Ok(Box::new(input))
}

fn zstd_decoder<'a, R: BufRead>(input: R) -> io::Result<zstd::Decoder<'a, R>> {
    let mut decoder = zstd::Decoder::with_buffer(input)?;
    decoder.window_log_max(LARGEST_WINDOW)?;
    Ok(decoder)
}
