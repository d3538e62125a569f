use super::*;

fn load() -> BuiltIns {
    let folder = tempfile::tempdir().unwrap();
    let programs = soulbox_guest_programs::install(&folder.path().join("bin")).unwrap();
    BuiltIns::load(&programs, Limits::default(), None, &host()).unwrap()
}

/// The template `base`.
fn host() -> Arc<Template> {
    Arc::new(Template {
        id: "base".parse().unwrap(),
        build_id: "0198f0de-0000-7000-8000-000000000001".to_owned(),
        aliases: vec!["base".to_owned()],
        overlays: Vec::new(),
        env: BTreeMap::new(),
        default_user: "user".to_owned(),
        default_workdir: String::new(),
        limits: Limits::default(),
        start: None,
        created_at: soulbox_types::UnixMillis(1),
    })
}

/// With a folder of the operator's, which has these definitions.
fn load_with(definitions: &[(&str, &str)]) -> anyhow::Result<BuiltIns> {
    let folder = tempfile::tempdir()?;
    let programs = soulbox_guest_programs::install(&folder.path().join("bin"))?;
    let own = folder.path().join("own");
    for (name, text) in definitions {
        fs_err::create_dir_all(own.join(name))?;
        fs_err::write(own.join(name).join("template.toml"), text)?;
        fs_err::write(own.join(name).join("motd"), "hello")?;
    }
    BuiltIns::load(&programs, Limits::default(), Some(&own), &host())
}

fn definition(name: &str, rest: &str) -> String {
    format!("name = '{name}'\ndescription = ''\nversion = 1\n{rest}")
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

#[test]
fn an_operators_definitions_come_after_those_that_they_stand_on() {
    let above = definition(
        "a",
        "base = { template = 'z' }\nsteps = [{ type = 'RUN', args = ['true'] }]",
    );
    let copy = "{ type = 'COPY', source = 'file:motd', dest = '/etc/motd' }";
    let run = "{ type = 'RUN', args = ['sleep 1'], seconds = 3 }";
    let below = format!("base = {{ template = 'base' }}\nend_seconds = 2\nsteps = [{run}, {copy}]");
    let below = definition("z", &below);
    let all = load_with(&[("a", &above), ("z", &below)]).unwrap();
    let (above, below) = (named(&all, "a"), named(&all, "z"));
    assert!(above.steps.starts_with(&below.steps) && matches!(above.base, Base::Template(_)));
    assert_eq!(below.seconds, [0, 3, 0, 2]);
    assert_eq!(above.seconds, [0, 3, 0, 0, 2]);
    assert!(
        all.archives
            .contains_key(below.steps[1].files_hash.as_ref().unwrap())
    );
}

#[test]
fn an_operators_definition_that_cannot_be_used_is_named_with_the_reason() {
    let reason = |name: &str, rest: &str| {
        let error = load_with(&[("own", &definition(name, rest))]).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("own/template.toml"), "{error}");
        error
    };
    let steps = "base = { template = 'base' }\nsteps";
    assert!(reason("agent", "base = { template = 'base' }").contains("a template agent already"));
    assert!(reason("base", "base = { template = 'agent' }").contains("a template base already"));
    assert!(reason("x", "base = { template = 'y' }").contains("x stands on y"));
    assert!(reason("x", "bass = 1").contains("unknown field"));
    let copy = |path: &str| {
        format!("{steps} = [{{ type = 'COPY', source = 'file:{path}', dest = '/a' }}]")
    };
    assert!(reason("x", &copy("../own/motd")).contains("no path below"));
    assert!(reason("x", &copy("absent")).contains("absent"));
    let circle = |of: &str, on: &str| definition(of, &format!("base = {{ template = '{on}' }}"));
    let error = load_with(&[("x", &circle("x", "y")), ("y", &circle("y", "x"))]).unwrap_err();
    assert!(error.to_string().contains("in a circle"), "{error}");
    assert!(load_with(&[]).is_err());
}

#[test]
fn what_takes_long_is_known_of_the_servers_own() {
    for definition in &load().definitions {
        assert_eq!(definition.seconds.len(), definition.steps.len() + 2);
        assert!(
            definition.seconds.iter().sum::<u32>() > 20,
            "{}",
            definition.name
        );
    }
}
