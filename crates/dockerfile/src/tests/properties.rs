//! What holds of any text that is read as a Dockerfile.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

fn word() -> impl Strategy<Value = String> {
    let likely = select(vec![
        "a",
        "b",
        "debian:12",
        "AS",
        "as",
        "0",
        "1",
        "9",
        "$A",
        "${A:-x}",
        "${B}",
        "A=1",
        "B=$A$A",
        "..",
        "../..",
        "/",
        "./a/../b",
        "*.txt",
        "--from=a",
        "--from=0",
        "--from=b",
        "--chown=x",
        "--chmod=755",
        "--mount=type=cache",
        "--platform=linux/amd64",
        "[\"a\",",
        "\"b\"]",
        "'c d'",
        "\\",
        "<<EOF",
        "<<-X",
        "CMD",
        "NONE",
        "template://t",
        "http://x",
        "a.tar.gz",
    ]);
    prop_oneof![8 => likely.prop_map(str::to_owned), 1 => "\\PC{0,6}"]
}

fn line() -> impl Strategy<Value = String> {
    let keyword = select(vec![
        "FROM",
        "FROM",
        "FROM",
        "RUN",
        "COPY",
        "COPY",
        "ADD",
        "ENV",
        "ARG",
        "WORKDIR",
        "USER",
        "CMD",
        "ENTRYPOINT",
        "HEALTHCHECK",
        "SHELL",
        "EXPOSE",
        "ONBUILD",
        "# escape=`",
        "# c",
        "EOF",
        "X",
        "",
        "what",
    ]);
    (keyword, vec(word(), 0..4))
        .prop_map(|(keyword, words)| format!("{keyword} {}", words.join(" ")))
}

/// Lines of a file, the first of which is likely right.
fn file() -> impl Strategy<Value = String> {
    let lines = || vec(line(), 0..10).prop_map(|lines| lines.join("\n"));
    prop_oneof![
        6 => lines().prop_map(|lines| format!("FROM x AS a\n{lines}")),
        1 => lines(),
        1 => "(\\PC|\n){0,60}",
    ]
}

fn is_below(path: &str) -> bool {
    !path.starts_with('/') && path.split('/').all(|part| part != "..")
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases * 4,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_file_is_a_plan_that_can_be_built_or_refused_with_its_line(text in file()) {
        let lines = u32::try_from(text.lines().count()).unwrap().max(1);
        let plan = match read(&text, &options()) {
            Ok(plan) => plan,
            Err(error) => {
                prop_assert!((1..=lines).contains(&error.line), "{error}");
                return Ok(());
            }
        };
        prop_assert!(!plan.stages.is_empty());
        prop_assert_eq!(plan.start.is_some(), plan.ready.is_some());
        let told = plan.warnings.iter().filter_map(|warning| warning.line);
        prop_assert!(told.chain(plan.start_line).all(|line| (1..=lines).contains(&line)));
        for (number, stage) in plan.stages.iter().enumerate() {
            // Only on what was built before.
            prop_assert!(!matches!(stage.base, Base::Stage(below) if below >= number));
            for step in &stage.steps {
                prop_assert!((1..=lines).contains(&step.line));
                prop_assert_eq!(step.copy.is_some(), step.kind == StepKind::Copy);
                match &step.copy {
                    Some(Copy::From(CopyFrom::Stage(from))) => prop_assert!(*from < number),
                    Some(Copy::Context { sources, inline, .. }) => {
                        prop_assert!(sources.iter().all(|source| is_below(source)), "{sources:?}");
                        let plain = |name: &str| !name.contains('/') && is_below(name);
                        prop_assert!(inline.iter().all(|file| plain(&file.name)));
                    }
                    _ => {}
                }
                if let Some(Copy::From(_)) = &step.copy {
                    let source = step.args[0].strip_prefix('/').unwrap();
                    prop_assert!(is_below(source), "{source}");
                }
            }
        }
    }

    #[test]
    fn every_stage_can_be_the_target(text in file(), target in "[ab019]") {
        let options = Options { target: Some(target), ..options() };
        if let Ok(plan) = read(&text, &options) {
            prop_assert!(!plan.stages.is_empty());
        }
    }
}
