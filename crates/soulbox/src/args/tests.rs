use clap::{CommandFactory, error::ErrorKind};

use super::*;

mod help;

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
fn a_bench_takes_suites_sizes_and_options_for_its_server() {
    let Command::Bench(bench) = parse(
        "soulbox bench create exec --quick --rounds 7 --large-file 1g --span 2m -- --pool 64",
    ) else {
        panic!()
    };
    assert_eq!(bench.serve, ["--pool", "64"]);
    assert!(!bench.is_elsewhere());
    let client = soulbox_client::Client::new(
        &soulbox_client::Config::resolve(
            &soulbox_client::config::Flags {
                api_url: Some("http://127.0.0.1:1".to_owned()),
                api_key: Some(Secret::new("e2b_x")),
                data_dir: None,
                context: None,
            },
            |_| None,
        )
        .unwrap(),
        None,
    );
    let server = soulbox_bench::ServerChoice::Running(Box::new(client));
    let mut options = soulbox_bench::Options::quick(server);
    bench.apply(&mut options);
    assert_eq!(options.rounds, 7);
    assert_eq!(options.large_file, 1 << 30);
    assert_eq!(options.span.as_secs(), 120);
    assert_eq!(options.suites.len(), 2);
    assert!(options.compare);
}

#[test]
fn an_address_or_an_option_makes_a_bench_measure_a_running_server() {
    for line in [
        "soulbox bench --running",
        "soulbox bench --api-url http://127.0.0.1:3000",
    ] {
        let Command::Bench(bench) = parse(line) else {
            panic!()
        };
        assert!(bench.is_elsewhere(), "{line}");
    }
    assert_eq!(
        error("soulbox bench --running -- --pool 1"),
        ErrorKind::ArgumentConflict
    );
    assert_eq!(error("soulbox bench creat"), ErrorKind::ValueValidation);
}

#[test]
fn a_bench_asks_for_something_and_for_no_more_than_a_server_can_hold() {
    for line in [
        "soulbox bench --sandboxes 100000",
        "soulbox bench --sandboxes 9",
        "soulbox bench --burst 4001",
        "soulbox bench --burst 0",
        "soulbox bench --span 0",
    ] {
        assert_eq!(error(line), ErrorKind::ValueValidation, "{line}");
    }
    let Command::Bench(bench) = parse("soulbox bench --sandboxes 4000 --burst 1") else {
        panic!();
    };
    assert_eq!((bench.sandboxes, bench.burst), (Some(4000), Some(1)));
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
fn a_mistyped_option_is_a_mistake_and_not_the_command() {
    for line in [
        "soulbox run --memroy 1g -- true",
        "soulbox run --memroy=1g true",
        "soulbox run -x true",
        "soulbox exec i1 --tiemout 1 -- true",
        "soulbox exec --tiemout 1 i1 true",
    ] {
        assert_eq!(error(line), ErrorKind::UnknownArgument, "{line}");
    }
    let error = Cli::try_parse_from(["soulbox", "run", "--memroy", "1g", "true"]).unwrap_err();
    assert!(error.to_string().contains("'--memory'"), "{error}");
}

#[test]
fn a_command_that_begins_with_a_dash_stands_behind_two() {
    for line in ["soulbox run -- -x -- y", "soulbox run --keep -- -x -- y"] {
        let Command::Run(run) = parse(line) else {
            panic!()
        };
        let arguments = ["--", "y"].map(str::to_owned).to_vec();
        assert_eq!(run.command.argv(), ("-x".to_owned(), arguments), "{line}");
    }
    let Command::Exec(exec) = parse("soulbox exec i1 -- -x") else {
        panic!()
    };
    assert_eq!(exec.command.argv().0, "-x");
    let Command::Exec(exec) = parse("soulbox exec i1 env -i A=1 --timeout -- 3") else {
        panic!()
    };
    let arguments = ["-i", "A=1", "--timeout", "--", "3"];
    assert_eq!(exec.command.argv().1, arguments);
    assert_eq!(exec.timeout, None);
}

#[test]
fn the_usage_of_kill_names_both_ways() {
    let error = Cli::try_parse_from(["soulbox", "kill"]).unwrap_err();
    let error = error.render().to_string();
    assert!(
        error.contains("kill [OPTIONS] SANDBOX...") && error.contains("kill [OPTIONS] --all"),
        "{error}"
    );
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
        "soulbox run --memory 64 ls",
        "soulbox run --disk 32m ls",
        "soulbox run --cpu 0 ls",
        "soulbox shell --cpu 33",
        "soulbox template build --memory 64 .",
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

fn template(line: &str) -> TemplateCommand {
    let Command::Template { command } = parse(line) else {
        panic!()
    };
    command
}

#[test]
fn a_build_takes_dockers_options() {
    let line = "soulbox template build -f d/Dockerfile -t web:v2 --build-arg A=1 --build-arg B= \
                --no-cache --type standard-1 --cpu 2 ctx";
    let TemplateCommand::Build(build) = template(line) else {
        panic!()
    };
    assert_eq!(build.context, PathBuf::from("ctx"));
    assert_eq!(build.file, Some(PathBuf::from("d/Dockerfile")));
    assert_eq!(build.name.as_deref(), Some("web:v2"));
    assert_eq!(build.arguments.len(), 2);
    assert!(build.settings.no_cache);
    assert_eq!(build.settings.instance_type.as_deref(), Some("standard-1"));
    let TemplateCommand::Build(plain) = template("soulbox template build") else {
        panic!()
    };
    assert_eq!(plain.context, PathBuf::from("."));
}

#[test]
fn a_builtin_needs_nothing_else() {
    let TemplateCommand::Build(build) = template("soulbox template build --builtin agent") else {
        panic!()
    };
    assert_eq!(build.builtin.as_deref(), Some("agent"));
    for line in ["-t x", "--no-cache", "--memory 1g", "ctx"] {
        let line = format!("soulbox template build --builtin agent {line}");
        assert_eq!(error(&line), ErrorKind::ArgumentConflict, "{line}");
    }
}

#[test]
fn commands_of_a_host_template_may_be_repeated() {
    let line = "soulbox template from-host -t x --run a --run b";
    let TemplateCommand::FromHost(host) = template(line) else {
        panic!()
    };
    assert_eq!(host.run, ["a", "b"]);
    assert_eq!(
        error("soulbox template from-image debian:12"),
        ErrorKind::MissingRequiredArgument
    );
}

#[test]
fn instance_types_are_known_by_name() {
    assert_eq!(error("soulbox run --type huge ls"), ErrorKind::InvalidValue);
    let Command::Run(run) = parse("soulbox run --type lite ls") else {
        panic!()
    };
    assert_eq!(run.create.instance_type.as_deref(), Some("lite"));
}

#[test]
fn a_password_needs_a_name_and_a_name_a_password() {
    let line = "soulbox template from-image x -t y";
    for half in ["--registry-username u", "--registry-password-stdin"] {
        assert_eq!(
            error(&format!("{line} {half}")),
            ErrorKind::MissingRequiredArgument
        );
    }
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
