use std::{collections::HashMap, io, path::PathBuf, sync::Arc};

use parking_lot::RwLock;
use soulbox_durable as durable;
use soulbox_types::{SandboxSpec, TemplateId};

use crate::{Result, Template, error::At};

/// Every build that this machine can start, by its UUID. Shared by the parts that make builds and
/// those that start sandboxes from them.
#[derive(Debug)]
pub struct Templates {
    folder: PathBuf,
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    builds: HashMap<String, Arc<Template>>,
    /// The server's own templates have one build at a time.
    own: HashMap<TemplateId, Arc<Template>>,
}

impl Templates {
    /// Reads what earlier runs kept in `folder`: one file per build.
    pub fn open(folder: PathBuf) -> Result<Self> {
        durable::make_folder(&folder, 0o700).at("make", &folder)?;
        let mut known = Known::default();
        for entry in std::fs::read_dir(&folder).at("list", &folder)? {
            let path = entry.at("list", &folder)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = std::fs::read(&path).at("read", &path)?;
            match serde_json::from_slice::<Template>(&text) {
                Ok(template) => {
                    known
                        .builds
                        .insert(template.build_id.clone(), Arc::new(template));
                }
                // The others still work; this one is not found when it is asked for.
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "the description of a build is damaged");
                }
            }
        }
        Ok(Self {
            folder,
            known: RwLock::new(known),
        })
    }

    /// What a sandbox starts from.
    pub fn of(&self, spec: &SandboxSpec) -> Option<Arc<Template>> {
        let known = self.known.read();
        match &spec.build {
            Some(build) => known.builds.get(build).cloned(),
            None => known.own.get(&spec.template).cloned(),
        }
    }

    pub fn build(&self, id: &str) -> Option<Arc<Template>> {
        self.known.read().builds.get(id).cloned()
    }

    pub fn own(&self, id: &TemplateId) -> Option<Arc<Template>> {
        self.known.read().own.get(id).cloned()
    }

    /// All saved and temporary builds, and the server's own.
    pub fn all(&self) -> Vec<Arc<Template>> {
        let known = self.known.read();
        known
            .builds
            .values()
            .chain(known.own.values())
            .cloned()
            .collect()
    }

    /// Names a template of the server itself, found by its id as well as by its build.
    pub fn set_own(&self, template: Template) {
        let template = Arc::new(template);
        let mut known = self.known.write();
        known.own.insert(template.id.clone(), template);
    }

    /// Adds a build for this run of the server only: the state between two steps.
    pub fn add_temporary(&self, template: Template) -> Arc<Template> {
        let template = Arc::new(template);
        let mut known = self.known.write();
        known
            .builds
            .insert(template.build_id.clone(), Arc::clone(&template));
        template
    }

    /// Adds a build and writes it to disk. Blocking.
    pub fn keep(&self, template: Template) -> Result<Arc<Template>> {
        let path = self.file(&template.build_id);
        let text = serde_json::to_vec(&template)
            .map_err(io::Error::other)
            .at("describe", &path)?;
        durable::write(&path, 0o600, &text).at("write", &path)?;
        Ok(self.add_temporary(template))
    }

    /// Idempotent. Blocking. Its layers stay until garbage collection.
    pub fn forget(&self, build: &str) -> Result<()> {
        self.known.write().builds.remove(build);
        let path = self.file(build);
        durable::remove(&path).at("remove", &path)
    }

    fn file(&self, build: &str) -> PathBuf {
        self.folder.join(format!("{build}.json"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use soulbox_types::{Limits, UnixMillis};

    use super::*;

    fn template(build: &str) -> Template {
        Template {
            id: TemplateId::random(),
            build_id: build.to_owned(),
            aliases: Vec::new(),
            overlays: Vec::new(),
            env: BTreeMap::new(),
            default_user: "user".to_owned(),
            default_workdir: String::new(),
            limits: Limits::default(),
            start: None,
            created_at: UnixMillis::now(),
        }
    }

    #[test]
    fn saved_builds_survive_a_restart_and_temporary_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Templates::open(folder.path().join("builds")).unwrap();
        let templates = open();
        templates.keep(template("kept")).unwrap();
        templates.add_temporary(template("temporary"));
        templates.keep(template("forgotten")).unwrap();
        templates.forget("forgotten").unwrap();
        templates.forget("forgotten").unwrap();
        assert!(templates.build("temporary").is_some() && templates.build("forgotten").is_none());
        let again = open();
        assert_eq!(again.all(), [templates.build("kept").unwrap()]);
    }

    #[test]
    fn a_damaged_description_costs_only_its_own_build() {
        let folder = tempfile::tempdir().unwrap();
        Templates::open(folder.path().to_owned())
            .unwrap()
            .keep(template("good"))
            .unwrap();
        std::fs::write(folder.path().join("bad.json"), "{").unwrap();
        let again = Templates::open(folder.path().to_owned()).unwrap();
        assert!(again.build("good").is_some() && again.build("bad").is_none());
    }
}
