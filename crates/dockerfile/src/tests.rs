use super::*;

mod copying;
mod properties;
mod real_world;
mod refused;
mod stages;
mod starting;
mod variables;

fn plan(text: &str) -> Plan {
    read(text, &options()).unwrap_or_else(|error| panic!("{error}"))
}

fn plan_with(text: &str, build_args: &[(&str, &str)]) -> Plan {
    let mut options = options();
    for (name, value) in build_args {
        options
            .build_args
            .insert((*name).to_owned(), (*value).to_owned());
    }
    read(text, &options).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> Error {
    read(text, &options()).expect_err(text)
}

/// Tests say what they mean on every machine.
fn options() -> Options {
    Options {
        architecture: "amd64".to_owned(),
        ..Options::default()
    }
}

/// The steps that the file itself asked for, `KIND a|b`.
fn steps(stage: &Stage) -> Vec<String> {
    let own = stage
        .steps
        .iter()
        .filter(|step| step.line != stage.line)
        .map(show);
    own.collect()
}

fn show(step: &Step) -> String {
    format!("{} {}", step.kind.name(), step.args.join("|"))
}

fn last(plan: &Plan) -> &Stage {
    plan.stages.last().unwrap()
}

/// The one step of `FROM x`, `USER user`, `WORKDIR /`, and a line.
fn step(line: &str) -> Step {
    let plan = plan(&format!("FROM x\nUSER user\nWORKDIR /\n{line}"));
    let own = |step: &&Step| step.line >= 4;
    let found: Vec<&Step> = last(&plan).steps.iter().filter(own).collect();
    assert_eq!(found.len(), 1, "{line}");
    found[0].clone()
}
