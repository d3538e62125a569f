use std::path::Path;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
}

fn flags(flags: &[&str]) -> Settings {
    Cli::try_parse_from([&["soulbox"], flags].concat())
        .unwrap()
        .serve
        .settings
}

fn file(text: &str) -> Result<Settings, ConfigError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs_err::write(file.path(), text).unwrap();
    Settings::from_file(file.path())
}

#[test]
fn without_options_the_defaults_hold() {
    let config = Config::try_from(Settings::default()).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:3000");
    assert_eq!(config.https.unwrap().to_string(), "127.0.0.1:3443");
    assert_eq!(config.admin.unwrap().to_string(), "127.0.0.1:3001");
    assert_eq!(config.domain, "sbx.localhost");
    assert_eq!(config.data_dir, Path::new("/var/lib/soulbox"));
    assert_eq!(config.limits, Limits::default());
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
    let file = file("listen = '0.0.0.0:80'\npool = 3\nhttps = 'off'\nmax-timeout = '7d'").unwrap();
    let config = Config::try_from(flags(&["--pool", "5"]).or(file)).unwrap();
    assert_eq!(config.pool, 5);
    assert_eq!(config.listen.port(), 80);
    assert_eq!(config.https, None);
    assert_eq!(config.max_timeout, Duration::from_hours(7 * 24));
    assert_eq!(config.max_sandboxes, 1000);
}

#[test]
fn every_option_has_a_variable_named_after_it() {
    use clap::CommandFactory;
    for argument in Cli::command().get_arguments() {
        let Some(flag) = argument.get_long().filter(|flag| *flag != "help") else {
            continue;
        };
        let variable = format!("SOULBOX_{}", flag.replace('-', "_").to_uppercase());
        assert_eq!(argument.get_env().unwrap().to_str().unwrap(), variable);
    }
}

#[test]
fn a_variable_wins_over_the_file_and_a_flag_over_the_variable() {
    // The environment belongs to the whole process, so another one is asked.
    let run = |args: &[&str]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(file.path(), "pool = 1\nmax-sandboxes = 10").unwrap();
        let exe = std::env::current_exe().unwrap();
        let output = std::process::Command::new(exe)
            .args([
                "--exact",
                "config::tests::prints_the_resulting_options",
                "--nocapture",
                "--ignored",
            ])
            .env("SOULBOX_POOL", "2")
            .env("SOULBOX_CONFIG", file.path())
            .env("TEST_FLAGS", args.join(" "))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let output = run(&[]);
    assert!(output.contains("pool=2 max=10"), "{output}");
    let output = run(&["--pool", "3"]);
    assert!(output.contains("pool=3 max=10"), "{output}");
}

#[test]
#[ignore = "a helper of the test above, run in a process of its own"]
fn prints_the_resulting_options() {
    let flags = std::env::var("TEST_FLAGS").unwrap_or_default();
    let cli = Cli::parse_from(std::iter::once("soulbox").chain(flags.split_whitespace()));
    let config = Config::try_from(cli.serve).unwrap();
    println!("pool={} max={}", config.pool, config.max_sandboxes);
}

#[test]
fn a_typo_in_the_file_is_an_error_that_names_it() {
    let error = file("listne = '127.0.0.1:1'").unwrap_err();
    let told = error.to_string();
    assert!(told.contains("did you mean `listen`"), "{told}");
}

#[test]
fn a_missing_file_is_an_error_that_names_it() {
    let error = Settings::from_file(Path::new("/nonexistent/soulbox.toml")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/soulbox.toml"));
}

#[test]
fn impossible_values_are_refused_with_the_option_named() {
    for (flags_, option) in [
        (&["--domain", "sbx.localhost:3443"][..], "--domain"),
        (&["--domain", "a..b"], "--domain"),
        (&["--domain", "a-.b"], "--domain"),
        (&["--tls-cert", "x.pem"], "--tls-cert"),
        (&["--tls-key", "x.pem"], "--tls-key"),
        (&["--cpus", "0"], "--cpus"),
        (&["--memory-mb", "1"], "--memory-mb"),
        (&["--max-timeout", "0"], "--max-timeout"),
        (&["--max-sandboxes", "0"], "--max-sandboxes"),
        (&["--parallel-builds", "0"], "--parallel-builds"),
        (&["--parallel-starts", "0"], "--parallel-starts"),
        (&["--admission-wait", "1h"], "--admission-wait"),
        (&["--overcommit-memory", "0"], "--overcommit-memory"),
        (&["--overcommit-cpu", "nan"], "--overcommit-cpu"),
    ] {
        let error = Config::try_from(flags(flags_)).unwrap_err().to_string();
        assert!(error.starts_with(option), "{flags_:?}: {error}");
    }
}

#[test]
fn reserves_that_this_machine_can_never_keep_are_refused_with_what_it_has() {
    let config = |option, mib| {
        Config::try_from(ServeArgs {
            config: None,
            settings: flags(&["--data-dir", "/tmp/not/yet", option, mib]),
        })
    };
    for option in ["--reserve-memory-mb", "--min-free-disk-mb"] {
        let error = config(option, "4294967295").unwrap_err().to_string();
        assert!(error.starts_with(option), "{error}");
        assert!(error.matches("MiB").count() > 1, "{error}");
        assert!(config(option, "1").is_ok());
    }
}

#[test]
fn times_are_read_as_people_write_them() {
    let seconds = |text: &str| text.parse::<Span>().map(|span| span.0.as_secs());
    assert_eq!(seconds("300"), Ok(300));
    assert_eq!(seconds("90m"), Ok(5400));
    assert_eq!(seconds("24h"), Ok(86400));
    assert_eq!(seconds("7d"), Ok(604_800));
    for bad in ["", "h", "1w", "-1s", "1.5h", "99999999999999999999d"] {
        assert!(seconds(bad).is_err(), "{bad}");
    }
}

#[test]
fn admission_has_options_in_the_file_too() {
    let file = file(
        "parallel-starts = 3\nadmission-wait = '10s'\nreserve-memory-mb = 2048\n\
         overcommit-memory = 1.5\novercommit-cpu = 4.0",
    )
    .unwrap();
    let admission = Config::try_from(flags(&["--admission-wait", "0"]).or(file))
        .unwrap()
        .admission;
    assert_eq!(
        admission,
        Admission {
            starts: 3,
            wait: Duration::ZERO,
            reserve_memory: Some(2 << 30),
            overcommit_memory: Some(1.5),
            overcommit_cpu: Some(4.0),
        }
    );
    let usual = Config::try_from(Settings::default()).unwrap().admission;
    assert_eq!(usual.wait, Duration::from_secs(3));
    assert_eq!((usual.reserve_memory, usual.overcommit_cpu), (None, None));
    assert!(usual.starts >= 4);
}
