//! Hellos for tests, by the fields of the standard.

#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) session: Vec<u8>,
    pub(crate) ciphers: Vec<u8>,
    pub(crate) extensions: Vec<(u16, Vec<u8>)>,
    pub(crate) has_extensions: bool,
}

impl Sample {
    pub(crate) fn of(name: &str) -> Self {
        let entry = [&[0][..], &vector16(name.as_bytes())].concat();
        Self {
            session: vec![7; 32],
            ciphers: vec![0x13, 0x01],
            extensions: vec![(0, vector16(&entry))],
            has_extensions: true,
        }
    }

    /// The handshake message.
    pub(crate) fn message(&self) -> Vec<u8> {
        let mut hello = [&[3, 3][..], &[9; 32], &vector8(&self.session)].concat();
        hello.extend(vector16(&self.ciphers));
        hello.extend([1, 0]);
        if self.has_extensions {
            let each = self.extensions.iter();
            let each = each
                .flat_map(|(kind, body)| [kind.to_be_bytes().to_vec(), vector16(body)].concat());
            hello.extend(vector16(&each.collect::<Vec<_>>()));
        }
        let length = u32::try_from(hello.len()).unwrap().to_be_bytes();
        [&[1][..], &length[1..], &hello].concat()
    }
}

pub(crate) fn in_records(message: &[u8], size: usize) -> Vec<u8> {
    let records = message.chunks(size);
    records
        .flat_map(|part| [&[22, 3, 1][..], &vector16(part)].concat())
        .collect()
}

fn vector8(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()][..], bytes].concat()
}

fn vector16(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    [&length.to_be_bytes()[..], bytes].concat()
}
