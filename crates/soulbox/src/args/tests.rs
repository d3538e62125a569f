use clap::{CommandFactory, error::ErrorKind};

use super::*;

fn parse(line: &str) -> Command {
    Cli::try_parse_from(line.split_whitespace())
        .unwrap_or_else(|error| panic!("{error}"))
        .command
}

fn error(line: &str) -> ErrorKind {
    Cli::try_parse_from(line.split_whitespace())
        .unwrap_err()
        .kind()
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn everything_after_the_command_belongs_to_it() {
    let Command::Run(run) = parse("soulbox run --timeout 90 -- ls -l --keep") else {
        panic!()
    };
    assert_eq!(
        run.command.argv(),
        ("ls".to_owned(), vec!["-l".to_owned(), "--keep".to_owned()])
    );
    assert_eq!(run.create.timeout, Some(90));
    assert!(!run.keep);
    let Command::Run(run) = parse("soulbox run echo -n hi") else {
        panic!()
    };
    assert_eq!(run.command.argv().1, ["-n", "hi"]);
}

#[test]
fn a_shell_line_goes_to_a_login_bash() {
    let Command::Exec(exec) = parse("soulbox exec i1 --shell pwd") else {
        panic!()
    };
    assert_eq!(
        exec.command.argv(),
        (
            "/bin/bash".to_owned(),
            ["-l", "-c", "pwd"].map(str::to_owned).to_vec()
        )
    );
}

#[test]
fn a_command_is_needed_and_only_one() {
    assert_eq!(error("soulbox run"), ErrorKind::MissingRequiredArgument);
    assert_eq!(error("soulbox exec i1"), ErrorKind::MissingRequiredArgument);
    assert_eq!(
        error("soulbox run --shell pwd -- ls"),
        ErrorKind::ArgumentConflict
    );
}

#[test]
fn kill_wants_names_or_all_but_not_both() {
    assert_eq!(error("soulbox kill"), ErrorKind::MissingRequiredArgument);
    assert_eq!(error("soulbox kill i1 --all"), ErrorKind::ArgumentConflict);
    let Command::Kill(kill) = parse("soulbox kill --all") else {
        panic!()
    };
    assert!(kill.all);
}

#[test]
fn a_shell_in_a_sandbox_that_is_there_cannot_choose_its_template() {
    assert_eq!(
        error("soulbox shell i1 --memory 1g"),
        ErrorKind::ArgumentConflict
    );
    let Command::Shell(shell) = parse("soulbox shell i1 --user root --env A=1") else {
        panic!()
    };
    assert_eq!(shell.sandbox.as_deref(), Some("i1"));
}

#[test]
fn a_detached_command_has_no_terminal() {
    assert_eq!(
        error("soulbox exec -d --tty i1 ls"),
        ErrorKind::ArgumentConflict
    );
}

#[test]
fn wrong_values_are_usage_errors() {
    for line in [
        "soulbox timeout i1 soon",
        "soulbox run --memory 1q ls",
        "soulbox run --cpu 0 ls",
    ] {
        assert_eq!(error(line), ErrorKind::ValueValidation, "{line}");
    }
}

#[test]
fn commands_that_pass_codes_through_fail_with_their_own() {
    assert_eq!(parse("soulbox run ls").failure_code(), 125);
    assert_eq!(parse("soulbox exec i1 ls").failure_code(), 125);
    assert_eq!(parse("soulbox ls").failure_code(), 1);
}

#[test]
fn the_key_is_not_in_the_help() {
    let help = Cli::command().render_long_help().to_string();
    assert!(help.contains("E2B_API_KEY") && help.contains("125"));
}

#[test]
fn completions_know_the_commands() {
    let mut script = Vec::new();
    clap_complete::generate(
        clap_complete::Shell::Bash,
        &mut Cli::command(),
        "soulbox",
        &mut script,
    );
    assert!(
        String::from_utf8(script)
            .unwrap()
            .contains("soulbox__subcmd__exec")
    );
}
