//! API keys in E2B's format: `e2b_` and 20 random bytes in hex. Only a digest is kept.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use sha2::{Digest, Sha256};
use soulbox_types::{Secret, id::fill_random};

pub(crate) const PREFIX: &str = "e2b_";
const RAW_LENGTH: usize = 20;
/// Shown to owners, so that they recognise a key: the first 2 and the last 4 characters.
const SHOWN_FIRST: usize = 2;
const SHOWN_LAST: usize = 4;

#[derive(Debug)]
pub(crate) struct Generated {
    pub(crate) key: Secret,
    pub(crate) hash: String,
    pub(crate) mask_prefix: String,
    pub(crate) mask_suffix: String,
    pub(crate) value_length: u32,
}

pub(crate) fn generate() -> Generated {
    let mut raw = [0_u8; RAW_LENGTH];
    fill_random(&mut raw);
    let value = hex::encode(raw);
    let (first, rest) = value.split_at(SHOWN_FIRST);
    let (_, last) = rest.split_at(rest.len() - SHOWN_LAST);
    Generated {
        hash: digest(&raw),
        mask_prefix: first.to_owned(),
        mask_suffix: last.to_owned(),
        value_length: u32::try_from(value.len()).unwrap_or_default(),
        key: Secret::new(format!("{PREFIX}{value}")),
    }
}

/// `None` when it is no key at all.
///
/// Looking the digest up in a map leaks nothing by its timing: who does not have the key cannot
/// steer its digest.
pub(crate) fn hash(key: &str) -> Option<String> {
    let raw = hex::decode(key.strip_prefix(PREFIX)?).ok()?;
    (raw.len() == RAW_LENGTH).then(|| digest(&raw))
}

fn digest(raw: &[u8]) -> String {
    format!("$sha256${}", STANDARD_NO_PAD.encode(Sha256::digest(raw)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_key_has_e2bs_shape_and_its_own_hash() {
        let made = generate();
        assert_eq!(made.key.expose().len(), 44);
        assert_eq!(hash(made.key.expose()), Some(made.hash));
        assert!(made.key.expose().ends_with(&made.mask_suffix));
        assert!(made.key.expose()[4..].starts_with(&made.mask_prefix));
        assert_ne!(made.key.expose(), generate().key.expose());
    }

    #[test]
    fn the_digest_is_that_of_the_raw_bytes() {
        let twenty_zeros = "$sha256$3kfJsn640wDbtfLDU+Yyw5MmLPBjQMT6fxtAxMvTb5A";
        assert_eq!(
            hash(&format!("e2b_{}", "0".repeat(40))).as_deref(),
            Some(twenty_zeros)
        );
    }

    #[test]
    fn what_is_no_key_has_no_hash() {
        for bad in [
            "",
            "e2b_",
            "e2b_zz",
            "sk_e2b_00",
            &"0".repeat(40),
            "e2b_0011",
        ] {
            assert_eq!(hash(bad), None, "{bad}");
        }
    }
}
