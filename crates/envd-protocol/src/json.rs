//! The corners of proto3's JSON mapping: bytes as base64, 64-bit numbers as strings, enums as
//! names, defaults left out, `null` for what is not set.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use serde::{
    Deserialize, Deserializer, Serializer,
    de::{DeserializeOwned, Error},
};
use serde_json::Value;

/// Padding is optional when reading, as the mapping demands.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD_LENIENT: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_LENIENT: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// A message in which any field may be `null`: "not set".
pub fn from_slice<M: DeserializeOwned>(text: &[u8]) -> serde_json::Result<M> {
    let mut value = serde_json::from_slice(text)?;
    drop_nulls(&mut value);
    serde_json::from_value(value)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// `Option<Vec<u8>>` as base64.
pub mod bytes {
    use super::{
        Deserialize, Deserializer, Engine, Error, STANDARD, STANDARD_LENIENT, Serializer,
        URL_LENIENT,
    };

    pub fn serialize<S: Serializer>(value: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(bytes) => to.serialize_str(&STANDARD.encode(bytes)),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else {
            return Ok(None);
        };
        let url_safe = text.contains(['-', '_']);
        let engine = if url_safe {
            URL_LENIENT
        } else {
            STANDARD_LENIENT
        };
        engine
            .decode(text)
            .map(Some)
            .map_err(|e| D::Error::custom(format!("bytes: {e}")))
    }
}

/// `i64` as a decimal string.
pub mod int64 {
    use super::{Deserializer, Serializer, number};

    pub fn serialize<S: Serializer>(value: &i64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
        number(from)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(i64),
    Text(String),
}

/// Any integer, also when written as a string.
pub fn number<'de, D: Deserializer<'de>, T: TryFrom<i64>>(from: D) -> Result<T, D::Error> {
    let number = match NumberOrText::deserialize(from)? {
        NumberOrText::Number(number) => number,
        NumberOrText::Text(text) => text.parse().map_err(D::Error::custom)?,
    };
    T::try_from(number).map_err(|_| D::Error::custom("number out of range"))
}

pub fn optional_number<'de, D: Deserializer<'de>, T: TryFrom<i64>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    number(from).map(Some)
}

/// An enum: written as its name, read as its name or number.
pub fn enum_from_json<'de, D: Deserializer<'de>>(
    from: D,
    names: &[(i32, &str)],
) -> Result<i32, D::Error> {
    match NumberOrText::deserialize(from)? {
        NumberOrText::Number(number) => {
            i32::try_from(number).map_err(|_| D::Error::custom("enum number out of range"))
        }
        NumberOrText::Text(text) => names
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(number, _)| *number)
            .ok_or_else(|| D::Error::custom(format!("unknown enum value {text:?}"))),
    }
}

pub fn enum_to_json<S: Serializer>(
    value: i32,
    names: &[(i32, &str)],
    to: S,
) -> Result<S::Ok, S::Error> {
    match names.iter().find(|(number, _)| *number == value) {
        Some((_, name)) => to.serialize_str(name),
        None => to.serialize_i32(value),
    }
}
