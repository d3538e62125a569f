//! From a Dockerfile's plan and the context to what is sent.

use std::{collections::BTreeMap, fs::File, io::Read, path::Path};

use anyhow::{Context as _, Result};
use soulbox_client::model::templates::{
    BuildBase, BuildStage, BuildStep, StageBase, StageFrom, StartBuild, StepSource,
};
use soulbox_dockerfile::{Base, Copy, CopyFrom, Plan, Stage, Step};

use super::credentials::RegistryCredentials;
use crate::{
    pack::{Archive, Context, InlineFile},
    report::advice,
};

/// Packs the files of all COPYs; the same files only once.
pub(super) fn prepare(
    plan: &Plan,
    context: &Context,
    credentials: &RegistryCredentials,
) -> Result<(StartBuild, Vec<Archive>)> {
    let mut packer = Packer {
        context,
        archives: BTreeMap::new(),
    };
    let mut start = StartBuild {
        start_cmd: plan.start.clone(),
        ready_cmd: plan.ready.clone(),
        ..StartBuild::default()
    };
    let credentials = |base: &Base| match base {
        Base::Image(image) => credentials.of(image),
        _ => None,
    };
    let last = plan.stages.len().saturating_sub(1);
    for (number, stage) in plan.stages.iter().enumerate() {
        let steps = packer.steps(stage)?;
        if number == last {
            start.base = match &stage.base {
                Base::Image(image) => BuildBase::Image(image.clone()),
                Base::Template(name) => BuildBase::Template(name.clone()),
                Base::Stage(number) => BuildBase::Stage(*number),
            };
            start.from_image_registry = credentials(&stage.base);
            start.steps = steps;
        } else {
            start.stages.push(BuildStage {
                from: StageFrom {
                    base: match &stage.base {
                        Base::Image(image) => StageBase::Image(image.clone()),
                        Base::Template(name) => StageBase::Template(name.clone()),
                        Base::Stage(number) => StageBase::Stage(*number),
                    },
                    registry: credentials(&stage.base),
                },
                steps,
            });
        }
    }
    Ok((start, packer.archives.into_values().collect()))
}

struct Packer<'a> {
    context: &'a Context,
    archives: BTreeMap<String, Archive>,
}

impl Packer<'_> {
    fn steps(&mut self, stage: &Stage) -> Result<Vec<BuildStep>> {
        stage
            .steps
            .iter()
            .map(|step| {
                self.step(step)
                    .with_context(|| format!("line {}", step.line))
            })
            .collect()
    }

    fn step(&mut self, step: &Step) -> Result<BuildStep> {
        let mut sent = BuildStep {
            kind: step.kind.name(),
            args: step.args.clone(),
            files_hash: None,
            from: None,
        };
        match &step.copy {
            None => {}
            Some(Copy::From(CopyFrom::Stage(number))) => {
                sent.from = Some(StepSource::Stage(*number));
            }
            Some(Copy::From(CopyFrom::Image(image))) => {
                sent.from = Some(StepSource::Image(image.clone()));
            }
            Some(Copy::Context {
                sources,
                inline,
                add,
            }) => {
                let destination = step.args.get(1).map_or("", String::as_str);
                let selection = self.context.select(sources, inline.len(), destination)?;
                if *add {
                    for path in selection.files.values() {
                        refuse_archive(path)?;
                    }
                }
                let mut source = selection.source.clone();
                let inline: Vec<InlineFile> = inline
                    .iter()
                    .map(|file| InlineFile {
                        name: match source.as_str() {
                            "" => file.name.clone(),
                            folder => format!("{folder}/{}", file.name),
                        },
                        content: file.content.clone(),
                    })
                    .collect();
                if let ("", Some(only)) = (source.as_str(), inline.first()) {
                    source.clone_from(&only.name);
                }
                let archive = Archive::pack(&selection, &inline)?;
                if let Some(first) = sent.args.first_mut() {
                    *first = source;
                }
                sent.files_hash = Some(archive.hash.clone());
                self.archives.insert(archive.hash.clone(), archive);
            }
        }
        Ok(sent)
    }
}

/// ADD unpacks what is an archive, whatever it is called. Better no template than another one.
fn refuse_archive(path: &Path) -> Result<()> {
    const TAR_MAGIC_AT: usize = 257;
    if !path.symlink_metadata()?.is_file() {
        return Ok(());
    }
    let mut start = Vec::new();
    let length = TAR_MAGIC_AT + 5;
    File::open(path)?
        .take(length as u64)
        .read_to_end(&mut start)?;
    let compressed: [&[u8]; 4] = [b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"];
    let is_archive = compressed.iter().any(|magic| start.starts_with(magic))
        || start.get(TAR_MAGIC_AT..) == Some(b"ustar");
    if is_archive {
        let message = format!(
            "ADD would unpack {}, which is not supported",
            path.display()
        );
        return Err(advice(message, "use COPY, and RUN tar -xf FILE"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use soulbox_dockerfile::Options;

    use super::*;
    use crate::{args::RegistryArgs, pack::Ignore};

    fn prepared(folder: &Path, dockerfile: &str) -> Result<(serde_json::Value, usize)> {
        let plan = soulbox_dockerfile::read(dockerfile, &Options::default())?;
        let context = Context::open(folder, Ignore::default())?;
        let credentials = RegistryCredentials::open(&RegistryArgs::default())?;
        let (start, archives) = prepare(&plan, &context, &credentials)?;
        Ok((serde_json::to_value(start)?, archives.len()))
    }

    #[test]
    fn a_file_with_two_stages_becomes_one_request() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "1").unwrap();
        std::fs::write(folder.path().join("b"), "2").unwrap();
        let text = "FROM quay.invalid/one AS build\nCOPY a b /src/\nFROM quay.invalid/two\n\
                    COPY --from=build /src /dst\nCOPY a /a\nCOPY a /b\nCOPY <<c /c\nx\nc\nUSER u\n\
                    WORKDIR /w\nCMD [\"run\"]\n";
        let (start, archives) = prepared(folder.path(), text).unwrap();
        assert_eq!(start["fromImage"], "quay.invalid/two");
        assert_eq!(
            start["stages"][0]["from"],
            json!({"image": "quay.invalid/one"})
        );
        let first = &start["stages"][0]["steps"][2];
        assert_eq!(first["args"], json!(["a b", "/src/", "root", ""]));
        assert_eq!(first["filesHash"].as_str().unwrap().len(), 64);
        let copy = &start["steps"][2];
        assert_eq!(copy["from"], json!({"stage": 0}));
        assert_eq!(copy["args"], json!(["/src", "/dst", "root", ""]));
        assert_eq!(
            start["steps"][3]["filesHash"],
            start["steps"][4]["filesHash"]
        );
        assert_eq!(start["steps"][5]["args"][0], "c");
        assert_eq!(start["startCmd"], "run");
        assert_eq!(archives, 3);
    }

    #[test]
    fn what_is_missing_is_told_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let error = prepared(folder.path(), "FROM x\nCOPY nope /").unwrap_err();
        assert_eq!(error.to_string(), "line 2");
        assert!(format!("{error:#}").contains("there is no nope"));
    }

    #[test]
    fn add_of_an_archive_is_refused_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("data"), b"\x1f\x8b\x08xxxx").unwrap();
        let error = prepared(folder.path(), "FROM x\nADD data /").unwrap_err();
        assert!(format!("{error:#}").contains("would unpack"));
        assert!(prepared(folder.path(), "FROM x\nCOPY data /").is_ok());
    }
}
