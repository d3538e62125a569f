//! USER: `[name]`, made when it is not there. Also what Dockerfiles have: numbers, and `name:group`
//! (the group is the account's own here).

use super::Outcome;
use crate::{
    expand::expand,
    problem::{Problem, Result},
    scripts,
    state::State,
    step_sandbox::StepSandbox,
};

const LONGEST_NAME: usize = 32;

pub(super) async fn run(
    sandbox: StepSandbox,
    mut state: State,
    args: &[String],
) -> Result<Outcome> {
    let Some(given) = args.first().filter(|name| !name.is_empty()) else {
        return Err(Problem::user("USER needs a name"));
    };
    let expanded = expand(given, &state.env)?;
    let name = expanded
        .split_once(':')
        .map_or(&*expanded, |(name, _)| name);
    let failed =
        |reason: String| Problem::user(format!("failed to create user '{given}': {reason}"));
    if !valid(name) {
        return Err(failed(
            "a name has letters, digits, '-', '_' and '.', and starts with a letter, a digit or '_'"
                .to_owned(),
        ));
    }
    let ran = sandbox.script(scripts::USER, &[name]).await;
    let ran = ran.map_err(|problem| match problem {
        Problem::User(reason) => failed(reason),
        internal @ Problem::Internal { .. } => internal,
    })?;
    let answer = ran.stdout.trim().split_once(' ');
    match answer {
        Some((change @ ("new" | "same"), name)) if ran.exit.is_success() && valid(name) => {
            name.clone_into(&mut state.user);
            Ok(Outcome {
                state,
                changed: change == "new",
                sandbox: Some(sandbox),
            })
        }
        _ => Err(failed(ran.reason())),
    }
}

fn valid(name: &str) -> bool {
    let part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.len() <= LONGEST_NAME
        && name.bytes().next().is_some_and(part)
        && name
            .bytes()
            .all(|byte| part(byte) || byte == b'-' || byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_names_and_nothing_else() {
        for good in ["root", "user", "_apt", "www-data", "1000", "Ada.L"] {
            assert!(valid(good), "{good}");
        }
        for bad in [
            "",
            "; exit 1",
            "a b",
            "-x",
            "a:b",
            "a\nb",
            "../x",
            &"x".repeat(33),
        ] {
            assert!(!valid(bad), "{bad:?}");
        }
    }
}
