//! The variables in scope at a line of the file.

use std::collections::BTreeMap;

use crate::expand::{Names, Value};

/// The variables of a stage.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    /// `None`: the value depends on the image's own.
    pub env: BTreeMap<String, Option<String>>,
    /// `None`: declared, but nobody gave a value.
    pub args: BTreeMap<String, Option<String>>,
}

impl Names for Scope {
    /// ENV wins over ARG, wherever they stand.
    fn value(&self, name: &str) -> Value {
        match (self.env.get(name), self.args.get(name)) {
            (Some(Some(value)), _) | (None, Some(Some(value))) => Value::Known(value.clone()),
            (None, Some(None)) => Value::Unset,
            (Some(None), _) | (None, None) => Value::Later,
        }
    }
}

/// What is declared above the first FROM, and what Docker declares by itself.
#[derive(Debug)]
pub(crate) struct Globals {
    pub args: BTreeMap<String, Option<String>>,
    platform: BTreeMap<String, String>,
}

impl Globals {
    pub(crate) fn new(architecture: &str) -> Self {
        let mut platform = BTreeMap::new();
        for side in ["TARGET", "BUILD"] {
            for (name, value) in [
                ("PLATFORM", format!("linux/{architecture}")),
                ("OS", "linux".to_owned()),
                ("ARCH", architecture.to_owned()),
                ("VARIANT", String::new()),
            ] {
                platform.insert(format!("{side}{name}"), value);
            }
        }
        Self {
            args: BTreeMap::new(),
            platform,
        }
    }

    /// For an ARG of a stage that gives no value of its own.
    pub(crate) fn inherited(&self, name: &str) -> Option<String> {
        match self.args.get(name) {
            Some(value) => value.clone(),
            None => self.platform.get(name).cloned(),
        }
    }
}

impl Names for Globals {
    /// In FROM: no image is in sight yet, so that everything is known.
    fn value(&self, name: &str) -> Value {
        self.inherited(name).map_or(Value::Unset, Value::Known)
    }
}
