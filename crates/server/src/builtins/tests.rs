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
    let slim = named(&all, "code-interpreter-slim");
    assert_eq!(slim.start, interpreter.start);
    assert_eq!(slim.limits, interpreter.limits);
}

#[test]
fn a_definition_has_values_of_its_own_for_the_steps_below() {
    let all = load();
    let steps = |name| format!("{:?}", named(&all, name).steps);
    let (slim, whole) = (steps("code-interpreter-slim"), steps("code-interpreter-v1"));
    assert!(slim.contains("fonts-noto-cjk") && whole.contains("fonts-noto-cjk"));
    assert!(!slim.contains("openjdk") && whole.contains("openjdk"));
    assert!(!slim.contains("@packages@") && !whole.contains("@packages@"));
}

#[test]
fn a_value_that_no_step_has_a_place_for_is_a_mistake() {
    let run = step(StepKind::Run, vec!["apt-get install @packages@".to_owned()]);
    let values = |name: &str| Values::from([(name.to_owned(), "hello".to_owned())]);
    let filled = fill(std::slice::from_ref(&run), &values("packages")).unwrap();
    assert_eq!(filled[0].args, ["apt-get install hello"]);
    let error = fill(&[run], &values("package")).unwrap_err();
    assert_eq!(error.to_string(), "no step has @package@");
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
