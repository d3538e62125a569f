//! The templates that the server brings along as definitions (`templates/` in the repository), and
//! those that its operator has in a folder of the same form.
//!
//! A definition that stands on another one is flattened: both then share their steps through the
//! builder's cache, and neither waits for the other.

mod definition;
mod source;
mod values;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sha2::{Digest, Sha256};
use soulbox_build::{Base, Builds, Step, StepKind};
use soulbox_control::{BuiltIn, Control};
use soulbox_guest_programs::Programs;
use soulbox_template::Template;
use soulbox_types::{Chain, Limits, TenantId};

use definition::{BaseDefinition, Definition, StepDefinition};
use source::{SOURCES, Source};
use values::{Values, fill};

/// What the server can build by itself, and the archives that the steps copy from.
#[derive(Debug, Default)]
pub(crate) struct BuiltIns {
    pub(crate) definitions: Vec<BuiltIn>,
    /// By name: the steps with what they leave open, and the values for it.
    open: BTreeMap<String, (Vec<Step>, Values)>,
    archives: BTreeMap<String, Bytes>,
}

impl BuiltIns {
    /// Blocking: reads programs and definitions. `folder`: the operator's own; `host`: what `base` is.
    pub(crate) fn load(
        programs: &Programs,
        default: Limits,
        folder: Option<&Path>,
        host: &Arc<Template>,
    ) -> anyhow::Result<Self> {
        let mut loaded = Self::default();
        for source in SOURCES {
            loaded.add(
                &Definition::read(&source)?,
                &source,
                programs,
                default,
                host,
            )?;
        }
        if let Some(folder) = folder {
            let mut waiting = Vec::new();
            for source in source::in_folder(folder)? {
                waiting.push((Definition::read(&source)?, source));
            }
            while !waiting.is_empty() {
                // Each after the one that it stands on, whatever their names.
                let next = waiting.iter().position(|(definition, _)| {
                    let below = definition.base.template();
                    !waiting.iter().any(|(other, _)| Some(&*other.name) == below)
                });
                let next = next.context("the definitions stand on each other in a circle")?;
                let (definition, source) = waiting.swap_remove(next);
                let added = loaded.add(&definition, &source, programs, default, host);
                added.with_context(|| source.to_string())?;
            }
        }
        Ok(loaded)
    }

    /// Gives the builder what the COPY steps need.
    pub(crate) async fn hand_over(
        &self,
        builder: &dyn Builds,
        tenant: &TenantId,
    ) -> anyhow::Result<()> {
        for (hash, archive) in &self.archives {
            if !builder.has_files(tenant, hash).await {
                let upload = stream::iter([Ok(archive.clone())]).boxed();
                builder
                    .receive_files(tenant, hash, upload)
                    .await
                    .context("could not keep the files of a built-in template")?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        definition: &Definition,
        source: &Source,
        programs: &Programs,
        default: Limits,
        host: &Arc<Template>,
    ) -> anyhow::Result<()> {
        let definition = definition.clone();
        let name = definition.name;
        let is_taken = self.definitions.iter().any(|known| known.name == name);
        ensure!(
            !is_taken && !host.aliases.contains(&name),
            "there is a template {name} already"
        );
        let (parent, base, (mut steps, mut values)) = match definition.base {
            BaseDefinition::Debian { packages } => {
                (None, Base::Debian { packages }, Default::default())
            }
            BaseDefinition::Template(below) if host.aliases.contains(&below) => {
                (None, Base::Template(Arc::clone(host)), Default::default())
            }
            BaseDefinition::Template(parent) => {
                let known = self.definitions.iter().find(|known| known.name == parent);
                let parent = known.with_context(|| {
                    format!("{name} stands on {parent}, which is no template of the server's own")
                })?;
                let open = self.open.get(&parent.name).cloned();
                (Some(parent), parent.base.clone(), open.unwrap_or_default())
            }
        };
        let mut seconds = parent.map_or_else(
            || vec![definition.base_seconds, 0],
            |parent| parent.seconds.clone(),
        );
        let end_seconds = seconds.pop().unwrap_or(0);
        let mut lanes = parent.map_or_else(Vec::new, |parent| parent.lanes.clone());
        let inherited = |own: Option<String>, of: fn(&BuiltIn) -> Option<String>| {
            own.or_else(|| parent.and_then(of))
        };
        let start = inherited(definition.start, |parent| parent.start.clone());
        let ready = inherited(definition.ready, |parent| parent.ready.clone());
        let limits = parent.map_or(default, |parent| parent.limits);
        let limits = Limits {
            cpu_millis: definition.cpu.map_or(limits.cpu_millis, |cpus| cpus * 1000),
            memory_mib: definition.memory_mb.unwrap_or(limits.memory_mib),
            disk_mib: definition.disk_mb.unwrap_or(limits.disk_mib),
            pids: limits.pids,
        };
        if !definition.env.is_empty() {
            let pairs = definition.env.into_iter();
            steps.push(step(
                StepKind::Env,
                pairs.flat_map(<[_; 2]>::from).collect(),
            ));
            seconds.push(0);
            lanes.push(None);
        }
        for each in definition.steps {
            seconds.push(each.seconds());
            lanes.push(each.lane());
            steps.push(self.step(each, source, programs)?);
        }
        seconds.push(definition.end_seconds.unwrap_or(end_seconds));
        values.extend(definition.values);
        let filled = fill(&steps, &values).with_context(|| format!("a value of {name}"))?;
        self.open.insert(name.clone(), (steps, values));
        let steps = filled;
        let shape = match &base {
            Base::Template(host) => format!("{} {:?}", host.build_id, host.id),
            other => format!("{other:?}"),
        };
        let shape = format!("{shape} {steps:?} {lanes:?} {start:?} {ready:?} {limits:?}");
        self.definitions.push(BuiltIn {
            name,
            version: hex::encode(&Sha256::digest(shape)[..10]),
            limits,
            base,
            steps,
            lanes,
            start,
            ready,
            seconds,
        });
        Ok(())
    }

    fn step(
        &mut self,
        definition: StepDefinition,
        source: &Source,
        programs: &Programs,
    ) -> anyhow::Result<Step> {
        Ok(match definition {
            StepDefinition::Run { args, .. } => step(StepKind::Run, args),
            StepDefinition::Env { args } => step(StepKind::Env, args),
            StepDefinition::Workdir { args } => step(StepKind::Workdir, args),
            StepDefinition::User { args } => step(StepKind::User, args),
            StepDefinition::Copy {
                source: from,
                dest,
                owner,
                mode,
                ..
            } => {
                let (src, files) = contents(&from, source, programs)?;
                let archive = pack(&files).context("could not pack a built-in template's files")?;
                let hash = hex::encode(Sha256::digest(&archive));
                self.archives.insert(hash.clone(), archive.into());
                Step {
                    files_hash: Some(hash),
                    ..step(StepKind::Copy, vec![src, dest, owner, mode])
                }
            }
        })
    }
}

/// Begins to build these; a start does not wait for the end.
pub(crate) async fn prebuild(control: &Arc<Control>, names: &[String]) -> anyhow::Result<()> {
    for name in names {
        match control.build_builtin(name).await {
            Ok(_) => {}
            Err(error @ soulbox_control::Error::UnknownBuiltIn { .. }) => {
                return Err(error).context("--prebuild");
            }
            Err(error) => {
                tracing::warn!(name, error = %Chain(&error), "could not begin to build a template");
            }
        }
    }
    Ok(())
}

fn step(kind: StepKind, args: Vec<String>) -> Step {
    Step {
        kind,
        args,
        files_hash: None,
        from: None,
        force: false,
    }
}

/// Path, content and mode.
type File = (String, Vec<u8>, u32);

/// The path in the archive, and what the archive holds.
fn contents(
    from: &str,
    source: &Source,
    programs: &Programs,
) -> anyhow::Result<(String, Vec<File>)> {
    match from.split_once(':') {
        Some(("file", path)) => {
            let file = (path.to_owned(), source.file(path)?, 0o644);
            Ok((path.to_owned(), vec![file]))
        }
        Some(("program", name @ "soulbox-interpreter")) => {
            let content = fs_err::read(&programs.interpreter)?;
            Ok((name.to_owned(), vec![(name.to_owned(), content, 0o755)]))
        }
        Some(("kernels", "soulbox-interpreter")) => {
            let files = soulbox_guest_programs::INTERPRETER_FILES.iter();
            let file = |(path, content): &(&str, &[u8])| {
                (format!("interpreter/{path}"), content.to_vec(), 0o644)
            };
            Ok(("interpreter".to_owned(), files.map(file).collect()))
        }
        _ => bail!("nothing is called {from}"),
    }
}

/// The same bytes for the same files: the archive's hash is part of the cache's key.
fn pack(files: &[File]) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content, mode) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(*mode);
        archive.append_data(&mut header, path, content.as_slice())?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests;
