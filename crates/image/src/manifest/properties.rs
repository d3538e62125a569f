//! What holds of whatever a registry sends as an image's JSON.

use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

use super::*;

/// Longer messages would fill logs and answers.
const LONGEST: usize = 1000;

fn is_short_refusal(error: &Error) -> bool {
    matches!(error, Error::Malformed { .. } | Error::Platform { .. })
        && error.to_string().len() <= LONGEST
}

fn platform() -> impl Strategy<Value = Value> {
    let os = select(vec!["linux", "windows", "unknown", "", "li\nnux"]);
    let machine = select(vec![architecture(), "s390y", "unknown", ""]);
    let variant = select(vec!["", "v7", "v8", "v1"]);
    (os, machine, variant).prop_map(|(os, architecture, variant)| {
        json!({ "os": os, "architecture": architecture, "variant": variant })
    })
}

fn descriptor() -> impl Strategy<Value = Value> {
    (any::<u32>(), option::of(platform())).prop_map(|(number, platform)| {
        let digest = Digest::of(&number.to_be_bytes()).to_string();
        json!({ "digest": digest, "size": number, "platform": platform })
    })
}

/// Values where others belong.
fn strange() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        (2000..9000_usize).prop_map(|length| Value::from("x".repeat(length))),
        Just(json!([])),
        Just(json!({ "digest": "sha256:../../etc/passwd", "size": 1 })),
        descriptor(),
        vec(descriptor(), 0..4).prop_map(Value::Array),
    ]
}

fn nearly_manifest() -> impl Strategy<Value = Value> {
    let name = select(vec![
        "schemaVersion",
        "config",
        "layers",
        "manifests",
        "mediaType",
        "x",
    ]);
    vec((name, strange()), 0..6).prop_map(|pairs| {
        Value::Object(
            pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    })
}

fn nearly_configuration() -> impl Strategy<Value = Value> {
    let name = select(vec!["architecture", "os", "config", "rootfs", "x"]);
    let inner = select(vec![
        "Env",
        "User",
        "WorkingDir",
        "Cmd",
        "ExposedPorts",
        "diff_ids",
    ]);
    let object = vec((inner, strange()), 0..4).prop_map(|pairs| {
        Value::Object(
            pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    });
    vec((name, prop_oneof![strange(), object]), 0..5).prop_map(|pairs| {
        Value::Object(
            pairs
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_index_leads_to_a_manifest_for_this_machine_or_is_refused(
        manifests in vec(descriptor(), 0..6),
    ) {
        let text = json!({ "schemaVersion": 2, "manifests": manifests }).to_string();
        let fits = |descriptor: &Value| {
            let platform = &descriptor["platform"];
            platform["os"] == "linux"
                && platform["architecture"] == architecture()
                && platform["variant"] != "v7"
        };
        let only = || match manifests.as_slice() {
            [only] if only["platform"].is_null() => Some(only),
            _ => None,
        };
        let expected = manifests.iter().find(|descriptor| fits(descriptor)).or_else(only);
        match Manifest::parse(text.as_bytes()) {
            Ok(Manifest::Index(found)) => {
                let digest = Value::from(found.digest.to_string());
                prop_assert_eq!(Some(&digest), expected.map(|descriptor| &descriptor["digest"]));
            }
            Ok(Manifest::Image(_)) => prop_assert!(false, "not an index"),
            Err(error) => {
                prop_assert!(expected.is_none());
                prop_assert!(is_short_refusal(&error), "{error}");
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }

    #[test]
    fn layers_come_back_in_order_unless_there_are_too_many(
        config in descriptor(),
        layers in vec(descriptor(), 0..MAX_LAYERS + 3),
    ) {
        let text = json!({ "config": config, "layers": layers }).to_string();
        match Manifest::parse(text.as_bytes()) {
            Ok(Manifest::Image(image)) => {
                prop_assert!(layers.len() <= MAX_LAYERS);
                let found = image.layers.iter().map(|layer| Value::from(layer.digest.to_string()));
                let sent = layers.iter().map(|layer| layer["digest"].clone());
                prop_assert!(found.eq(sent));
            }
            Ok(Manifest::Index(_)) => prop_assert!(false, "not an index"),
            Err(error) => {
                prop_assert!(layers.len() > MAX_LAYERS);
                prop_assert!(is_short_refusal(&error), "{error}");
            }
        }
    }

    #[test]
    fn any_document_is_a_manifest_or_refused_in_a_few_words(
        bytes in prop_oneof![
            4 => nearly_manifest().prop_map(|value| value.to_string().into_bytes()),
            1 => vec(any::<u8>(), 0..60),
        ],
    ) {
        if let Err(error) = Manifest::parse(&bytes) {
            prop_assert!(is_short_refusal(&error), "{} bytes", error.to_string().len());
        }
    }

    #[test]
    fn any_configuration_is_one_or_refused_in_a_few_words(
        bytes in prop_oneof![
            4 => nearly_configuration().prop_map(|value| value.to_string().into_bytes()),
            1 => vec(any::<u8>(), 0..60),
        ],
        layers in 0..3_usize,
    ) {
        match configuration(&bytes, layers) {
            Ok((_, diff_ids)) => prop_assert_eq!(diff_ids.len(), layers),
            Err(error) => {
                prop_assert!(is_short_refusal(&error), "{} bytes", error.to_string().len());
            }
        }
    }
}
