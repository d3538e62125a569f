//! Drops privileges. The order matters: each step needs what the next one takes away.

use std::io;

use rustix::{
    fs::Mode,
    process::umask,
    thread::{
        CapabilitySet, CapabilitySets, Gid, Uid, clear_ambient_capability_set,
        remove_capability_from_bounding_set, set_capabilities, set_thread_groups,
        set_thread_res_gid, set_thread_res_uid,
    },
};
use soulbox_sys::seccomp;
use soulbox_types::guest::InitSpec;

use crate::error::{Context, Failure};

const CAPABILITIES: u8 = 64;

/// Until here we were the host's root, who has no name in this user namespace.
pub(crate) fn become_sandbox_root() -> io::Result<()> {
    set_thread_groups(&[])?;
    set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    umask(Mode::WGRP | Mode::WOTH);
    Ok(())
}

/// Seccomp and capabilities. `no_new_privs` stays off: `sudo` inside must work, and it can give
/// nothing that the bounding set does not hold.
pub(crate) fn forbid(spec: &InitSpec) -> Result<(), Failure> {
    let step = "capabilities";
    clear_ambient_capability_set().at(step)?;
    let mut kept = CapabilitySet::empty();
    for number in 0..CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if spec.capabilities.contains(&number) {
            kept |= capability;
        } else if let Err(error) = remove_capability_from_bounding_set(capability) {
            // Numbers that this kernel does not know.
            if error != rustix::io::Errno::INVAL {
                return Err(error).at(step);
            }
        }
    }
    // Needs CAP_SYS_ADMIN, so it comes before that is gone.
    seccomp::load(&decode_hex(&spec.seccomp).at("seccomp")?).at("seccomp")?;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).at(step)
}

fn decode_hex(text: &str) -> io::Result<Vec<u8>> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "not hexadecimal");
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return Err(invalid());
    }
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).map_err(|_| invalid()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_decoded_strictly() {
        assert_eq!(decode_hex("00ff10").unwrap(), [0, 255, 16]);
        assert!(decode_hex("0").is_err());
        assert!(decode_hex("zz").is_err());
        assert!(decode_hex("é").is_err());
    }
}
