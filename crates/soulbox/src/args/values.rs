//! Values that people write in more than one way.

use clap::builder::PossibleValuesParser;
use soulbox_client::model::VolumeMount;
use soulbox_types::{
    INSTANCE_TYPES,
    limits::{MAX_DISK_MIB, MAX_MEMORY_MIB, MIN_DISK_MIB, MIN_MEMORY_MIB},
};

/// `lite` to `standard-4`.
pub(crate) fn instance_type() -> PossibleValuesParser {
    PossibleValuesParser::new(INSTANCE_TYPES.map(|(name, _)| name))
}

/// `90`, `90s`, `15m`, `2h`, `1d` in seconds.
pub(crate) fn seconds(text: &str) -> Result<u32, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(format!("{unit:?} is not a unit of time; use s, m, h or d")),
    };
    scaled(number, factor, text)
}

/// What a sandbox may have of it, in MiB.
pub(crate) fn memory(text: &str) -> Result<u32, String> {
    within(size(text)?, MIN_MEMORY_MIB, MAX_MEMORY_MIB)
}

/// What a sandbox may have of it, in MiB.
pub(crate) fn disk(text: &str) -> Result<u32, String> {
    within(size(text)?, MIN_DISK_MIB, MAX_DISK_MIB)
}

fn within(size: u32, least: u32, most: u32) -> Result<u32, String> {
    if (least..=most).contains(&size) {
        return Ok(size);
    }
    Err(format!(
        "must be between {} and {}",
        written(least),
        written(most)
    ))
}

/// As one would write it here.
fn written(mebibytes: u32) -> String {
    match (mebibytes % (1024 * 1024), mebibytes % 1024) {
        (0, _) => format!("{}t", mebibytes / (1024 * 1024)),
        (_, 0) => format!("{}g", mebibytes / 1024),
        _ => format!("{mebibytes}m"),
    }
}

/// `512`, `512m`, `512MiB`, `2g`, `2GiB` in MiB.
pub(crate) fn mebibytes(text: &str) -> Result<u32, String> {
    match size(text)? {
        0 => Err("must be more than nothing".to_owned()),
        size => Ok(size),
    }
}

fn size(text: &str) -> Result<u32, String> {
    let lower = text.to_ascii_lowercase();
    let (number, unit) = split(&lower);
    let factor = match unit {
        "" | "m" | "mb" | "mib" => 1,
        "g" | "gb" | "gib" => 1024,
        "t" | "tb" | "tib" => 1024 * 1024,
        _ => return Err(format!("{unit:?} is not a unit of size; use m, g or t")),
    };
    scaled(number, factor, text)
}

/// `NAME=value`, or `NAME` for the value that it has here.
pub(crate) fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("a variable needs a name".to_owned()),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => std::env::var(text)
            .map(|value| (text.to_owned(), value))
            .map_err(|_| format!("{text} is not set here; write {text}=VALUE")),
    }
}

/// `NAME:/path`.
pub(crate) fn volume_mount(text: &str) -> Result<VolumeMount, String> {
    match text.split_once(':') {
        Some((name, _)) if name.starts_with(['/', '.', '~']) => Err(
            "folders of this machine cannot be mounted: `soulbox volume create NAME` makes a \
             volume, `soulbox cp` copies files"
                .to_owned(),
        ),
        Some((name, path)) if !name.is_empty() && path.starts_with('/') => Ok(VolumeMount {
            name: name.to_owned(),
            path: path.to_owned(),
        }),
        _ => Err("write NAME:/PATH, such as results:/data".to_owned()),
    }
}

/// `-t` chose the template before it was the terminal, as it is in Docker.
pub(crate) fn not_a_template(text: &str) -> Result<String, String> {
    Err(format!(
        "-t is --tty in `run` and `exec`; the template is chosen with --template {text}"
    ))
}

fn split(text: &str) -> (&str, &str) {
    let end = text
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

fn scaled(number: &str, factor: u32, text: &str) -> Result<u32, String> {
    let number: u32 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a number"))?;
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        let cases = [
            ("90", 90),
            ("90s", 90),
            ("15m", 900),
            ("2h", 7200),
            ("1d", 86_400),
        ];
        for (text, expected) in cases {
            assert_eq!(seconds(text), Ok(expected));
        }
        for bad in ["", "h", "-1", "1.5h", "1w", "999999d"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_mebibytes_unless_they_say_otherwise() {
        for (text, expected) in [("512", 512), ("512MiB", 512), ("2g", 2048), ("1T", 1 << 20)] {
            assert_eq!(mebibytes(text), Ok(expected));
        }
        for bad in ["0", "1k", "g", "9999999t"] {
            assert!(mebibytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_that_no_sandbox_can_have_are_refused_as_they_would_be_written() {
        assert_eq!(memory("128"), Ok(128));
        assert_eq!(memory("256g"), Ok(256 * 1024));
        for bad in ["0", "64", "127m", "257g"] {
            let said = memory(bad).unwrap_err();
            assert_eq!(said, "must be between 128m and 256g", "{bad}");
        }
        assert_eq!(disk("1t"), Ok(1024 * 1024));
        assert_eq!(
            disk("63").unwrap_err(),
            "must be between 64m and 1t".to_owned()
        );
    }

    #[test]
    fn a_volume_has_a_name_and_a_path_inside() {
        let mount = volume_mount("results:/data").unwrap();
        assert_eq!(
            (mount.name.as_str(), mount.path.as_str()),
            ("results", "/data")
        );
        for bad in ["results", "results:", ":/data", "results:data"] {
            assert!(
                volume_mount(bad).unwrap_err().contains("NAME:/PATH"),
                "{bad}"
            );
        }
        assert!(
            volume_mount("./src:/src")
                .unwrap_err()
                .contains("soulbox cp")
        );
    }

    #[test]
    fn values_of_variables_may_hold_equal_signs() {
        assert_eq!(assignment("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert!(assignment("=x").is_err());
        assert!(assignment("SURELY_NOT_SET_HERE").is_err());
    }
}
