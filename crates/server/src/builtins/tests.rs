use super::*;

fn load() -> BuiltIns {
    let folder = tempfile::tempdir().unwrap();
    let programs = soulbox_guest_programs::install(&folder.path().join("bin")).unwrap();
    BuiltIns::load(&programs, Limits::default()).unwrap()
}

fn named<'a>(all: &'a BuiltIns, name: &str) -> &'a BuiltIn {
    let found = all.definitions.iter().find(|each| each.name == name);
    found.unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn every_definition_is_read_and_its_files_are_there() {
    let all = load();
    assert_eq!(all.definitions.len(), SOURCES.len());
    for definition in &all.definitions {
        for step in &definition.steps {
            if step.kind == StepKind::Copy {
                assert!(all.archives.contains_key(step.files_hash.as_ref().unwrap()));
            }
        }
    }
}

#[test]
fn a_definition_begins_with_the_steps_of_the_one_that_it_stands_on() {
    let all = load();
    let (debian, interpreter) = (
        named(&all, "base-debian"),
        named(&all, "code-interpreter-v1"),
    );
    assert!(interpreter.steps.starts_with(&debian.steps));
    assert!(interpreter.steps.len() > debian.steps.len());
    assert!(debian.start.is_none() && interpreter.start.is_some());
    let r = named(&all, "code-interpreter-r");
    assert_eq!(r.start, interpreter.start);
    assert_eq!(r.limits, interpreter.limits);
}

#[test]
fn the_same_definitions_have_the_same_versions() {
    let versions = |all: BuiltIns| -> Vec<String> {
        all.definitions
            .into_iter()
            .map(|each| each.version)
            .collect()
    };
    assert_eq!(versions(load()), versions(load()));
}
