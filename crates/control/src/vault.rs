//! Seals what must not be readable in the database: with a key derived from the server's seed,
//! and bound to whom and what it belongs to, so that no row can stand in for another.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use soulbox_types::{Secret, TenantId};

use crate::{Error, Result, token::TokenMaker};

const LABEL: &str = "vault-1";

pub(crate) struct Vault {
    key: LessSafeKey,
}

impl Vault {
    pub(crate) fn new(tokens: &TokenMaker) -> Result<Self> {
        let key = UnboundKey::new(&AES_256_GCM, &tokens.derive(LABEL))
            .map_err(|_| Error::Internal("the derived key has a wrong length"))?;
        Ok(Self {
            key: LessSafeKey::new(key),
        })
    }

    pub(crate) fn seal(&self, tenant: &TenantId, id: &str, value: &Secret) -> Result<String> {
        let failed = || Error::Internal("a value could not be sealed");
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| failed())?;
        let mut data = value.expose().as_bytes().to_vec();
        self.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(owner(tenant, id)),
                &mut data,
            )
            .map_err(|_| failed())?;
        Ok(STANDARD.encode([nonce.as_slice(), &data].concat()))
    }

    pub(crate) fn open(&self, tenant: &TenantId, id: &str, sealed: &str) -> Result<Secret> {
        let failed =
            || Error::Internal("a sealed value cannot be opened: was the seed file replaced?");
        let bytes = STANDARD.decode(sealed).map_err(|_| failed())?;
        let (nonce, data) = bytes.split_first_chunk().ok_or_else(failed)?;
        let mut data = data.to_vec();
        let opened = self
            .key
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(owner(tenant, id)),
                &mut data,
            )
            .map_err(|_| failed())?;
        String::from_utf8(opened.to_vec())
            .map(Secret::new)
            .map_err(|_| failed())
    }
}

fn owner(tenant: &TenantId, id: &str) -> Vec<u8> {
    format!("{tenant}/{id}").into_bytes()
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vault(seed: &str) -> Vault {
        Vault::new(&TokenMaker::new(&Secret::new(seed)).unwrap()).unwrap()
    }

    fn tenant() -> TenantId {
        "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
    }

    #[test]
    fn a_sealed_value_comes_back_only_for_its_owner_and_seed() {
        let (one, value) = (vault("00ff"), Secret::new("geheim 🗝"));
        let sealed = one.seal(&tenant(), "sec_1", &value).unwrap();
        assert!(!sealed.contains("geheim"));
        assert_eq!(one.open(&tenant(), "sec_1", &sealed).unwrap(), value);
        assert!(one.open(&tenant(), "sec_2", &sealed).is_err());
        assert!(vault("00fe").open(&tenant(), "sec_1", &sealed).is_err());
        for broken in ["", "AAAA", "not base64!", &sealed[..sealed.len() - 4]] {
            assert!(one.open(&tenant(), "sec_1", broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn the_same_value_is_never_sealed_alike() {
        let (vault, value) = (vault("00ff"), Secret::new("x"));
        let seal = || vault.seal(&tenant(), "sec_1", &value).unwrap();
        assert_ne!(seal(), seal());
    }
}
