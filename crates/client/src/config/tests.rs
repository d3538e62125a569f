use super::*;

fn nothing(_: &str) -> Option<String> {
    None
}

fn variables<const N: usize>(
    pairs: [(&'static str, &'static str); N],
) -> impl Fn(&str) -> Option<String> {
    move |name| {
        pairs
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| (*value).to_owned())
    }
}

fn folder_with(env: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("env"), env).unwrap();
    folder
}

fn flags(folder: &tempfile::TempDir) -> Flags {
    Flags {
        data_dir: Some(folder.path().to_owned()),
        ..Flags::default()
    }
}

const FILE: &str = "export E2B_API_KEY=e2b_file\nexport E2B_API_URL=http://127.0.0.1:4000\n\
                    export E2B_SANDBOX_URL=http://127.0.0.1:4001\n";

#[test]
fn the_data_folder_is_enough() {
    let folder = folder_with(FILE);
    let config = Config::resolve(&flags(&folder), nothing).unwrap();
    assert_eq!(config.api_url.to_string(), "http://127.0.0.1:4000");
    assert_eq!(config.sandbox_url.to_string(), "http://127.0.0.1:4001");
    assert_eq!(config.api_key, Secret::new("e2b_file"));
    assert_eq!(config.key_source, Source::File(folder.path().join("env")));
}

#[test]
fn the_data_folder_can_come_from_a_variable() {
    let folder = folder_with(FILE);
    let path = folder.path().to_str().unwrap().to_owned();
    let config = Config::resolve(&Flags::default(), |name| {
        (name == "SOULBOX_DATA_DIR").then(|| path.clone())
    });
    assert_eq!(config.unwrap().api_key, Secret::new("e2b_file"));
}

#[test]
fn variables_win_over_the_default_folders_file_and_ours_over_e2bs() {
    let folder = folder_with(FILE);
    let path = folder.path().to_str().unwrap().to_owned();
    let set = variables([
        ("E2B_API_KEY", "e2b_vendor"),
        ("SOULBOX_API_KEY", "e2b_ours"),
        ("E2B_API_URL", "http://10.0.0.1:3000"),
        ("E2B_SANDBOX_URL", "http://10.0.0.1:3001"),
    ]);
    let environment = |name: &str| match name {
        "SOULBOX_DATA_DIR" => Some(path.clone()),
        other => set(other),
    };
    let config = Config::resolve(&Flags::default(), environment).unwrap();
    assert_eq!(config.api_key, Secret::new("e2b_ours"));
    assert_eq!(config.key_source, Source::Variable("SOULBOX_API_KEY"));
    assert_eq!(config.api_url.to_string(), "http://10.0.0.1:3000");
    assert_eq!(config.sandbox_url.to_string(), "http://10.0.0.1:3001");
}

#[test]
fn flags_win_over_everything_and_take_the_data_plane_along() {
    let folder = folder_with(FILE);
    let flags = Flags {
        api_url: Some("http://other:3000".to_owned()),
        api_key: Some(Secret::new("e2b_flag")),
        ..flags(&folder)
    };
    let environment = variables([
        ("E2B_SANDBOX_URL", "http://10.0.0.1:3001"),
        ("E2B_API_KEY", "x"),
    ]);
    let config = Config::resolve(&flags, environment).unwrap();
    assert_eq!(config.api_key, Secret::new("e2b_flag"));
    assert_eq!(config.sandbox_url.to_string(), "http://other:3000");
}

#[test]
fn a_domain_means_https_with_its_api_name() {
    let environment = variables([("E2B_DOMAIN", "sbx.localhost:3443"), ("E2B_API_KEY", "k")]);
    let config = Config::resolve(&Flags::default(), environment).unwrap();
    assert_eq!(config.api_url.to_string(), "https://api.sbx.localhost:3443");
}

#[test]
fn empty_variables_count_as_unset() {
    let folder = folder_with(FILE);
    let path = folder.path().to_str().unwrap().to_owned();
    let environment = |name: &str| match name {
        "SOULBOX_DATA_DIR" => Some(path.clone()),
        "E2B_API_KEY" | "E2B_API_URL" => Some(String::new()),
        _ => None,
    };
    let config = Config::resolve(&Flags::default(), environment).unwrap();
    assert_eq!(config.api_key, Secret::new("e2b_file"));
}

/// What a shell has that loaded another server's `env`.
fn another_server() -> impl Fn(&str) -> Option<String> {
    variables([
        ("E2B_API_KEY", "e2b_other"),
        ("SOULBOX_API_KEY", "e2b_other"),
        ("E2B_API_URL", "http://10.0.0.1:3000"),
        ("SOULBOX_API_URL", "http://10.0.0.1:3000"),
        ("E2B_SANDBOX_URL", "http://10.0.0.1:3001"),
        ("E2B_DOMAIN", "other.example"),
        ("SOULBOX_DATA_DIR", "/nowhere"),
    ])
}

#[test]
fn a_folder_that_is_named_by_flag_wins_over_the_whole_environment() {
    let folder = folder_with(FILE);
    let config = Config::resolve(&flags(&folder), another_server()).unwrap();
    assert_eq!(config, Config::resolve(&flags(&folder), nothing).unwrap());
    assert_eq!(config.api_key, Secret::new("e2b_file"));
    assert_eq!(config.api_url.to_string(), "http://127.0.0.1:4000");
    assert_eq!(config.sandbox_url.to_string(), "http://127.0.0.1:4001");
}

#[test]
fn a_named_folder_gives_what_the_other_flags_leave_open() {
    let folder = folder_with(FILE);
    let with_key = Flags {
        api_key: Some(Secret::new("e2b_flag")),
        ..flags(&folder)
    };
    let config = Config::resolve(&with_key, another_server()).unwrap();
    assert_eq!(config.api_key, Secret::new("e2b_flag"));
    assert_eq!(config.api_url.to_string(), "http://127.0.0.1:4000");
    let with_url = Flags {
        api_url: Some("http://flag:3000".to_owned()),
        ..flags(&folder)
    };
    let config = Config::resolve(&with_url, another_server()).unwrap();
    assert_eq!(config.api_key, Secret::new("e2b_file"));
    assert_eq!(config.api_url.to_string(), "http://flag:3000");
    assert_eq!(config.sandbox_url.to_string(), "http://flag:3000");
}

#[test]
fn a_named_folder_without_a_server_is_an_error_whatever_the_environment_has() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let with_key = |data_dir: &Path| Flags {
        api_key: Some(Secret::new("e2b_flag")),
        data_dir: Some(data_dir.to_owned()),
        ..Flags::default()
    };
    for wrong in [flags(&folder), with_key(folder.path()), with_key(&missing)] {
        let error = Config::resolve(&wrong, another_server()).unwrap_err();
        assert!(matches!(error, ConfigError::NoServer { .. }), "{error}");
        assert!(error.to_string().contains(folder.path().to_str().unwrap()));
        assert!(error.hint().contains("soulbox serve"));
    }
    let no_address = folder_with("export E2B_API_KEY=e2b_file\n");
    let error = Config::resolve(&flags(&no_address), another_server()).unwrap_err();
    assert!(matches!(error, ConfigError::NoAddress { .. }), "{error}");
    let no_key = folder_with("export E2B_API_URL=http://127.0.0.1:4000\n");
    let error = Config::resolve(&flags(&no_key), another_server()).unwrap_err();
    assert!(matches!(error, ConfigError::Incomplete { .. }), "{error}");
}

#[test]
fn without_any_key_the_error_names_the_file_that_was_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    let error = Config::resolve(&Flags::default(), |name| {
        (name == "SOULBOX_DATA_DIR").then(|| path.clone())
    });
    let error = error.unwrap_err();
    assert!(matches!(error, ConfigError::NoKey { .. }));
    assert!(error.to_string().contains(&path));
    assert!(error.hint().contains("soulbox serve"));
}

#[test]
fn a_wrong_address_says_where_it_came_from() {
    let environment = variables([("E2B_API_URL", "localhost:3000"), ("E2B_API_KEY", "k")]);
    let error = Config::resolve(&Flags::default(), environment).unwrap_err();
    assert_eq!(error.to_string(), "the address from E2B_API_URL is wrong");
}

fn home_with(current: Option<&str>) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let context = |url: &str, ca: Option<&str>| crate::contexts::Context {
        api_url: url.to_owned(),
        sandbox_url: None,
        api_key: Secret::new(format!("e2b_of_{url}")),
        ca: ca.map(str::to_owned),
    };
    let contexts = Contexts {
        current: current.map(str::to_owned),
        contexts: [
            (
                "one".to_owned(),
                context("https://api.one.example", Some("PEM")),
            ),
            ("two".to_owned(), context("https://api.two.example", None)),
        ]
        .into(),
    };
    contexts.save(&home.path().join(".config/soulbox")).unwrap();
    home
}

fn at_home(
    home: &tempfile::TempDir,
    set: &[(&'static str, &'static str)],
) -> impl Fn(&str) -> Option<String> {
    let (home, set) = (home.path().to_str().unwrap().to_owned(), set.to_vec());
    move |name| match name {
        "HOME" => Some(home.clone()),
        other => set
            .iter()
            .find(|(n, _)| *n == other)
            .map(|(_, value)| (*value).to_owned()),
    }
}

#[test]
fn a_context_counts_as_a_whole_and_after_what_is_said_more_clearly() {
    let home = home_with(Some("one"));
    let resolved = |flags: &Flags, set: &[(&'static str, &'static str)]| {
        let config = Config::resolve(flags, at_home(&home, set)).unwrap();
        (
            config.api_url.to_string(),
            config.api_key.expose().to_owned(),
        )
    };
    let one = (
        "https://api.one.example".to_owned(),
        "e2b_of_https://api.one.example".to_owned(),
    );
    let two = (
        "https://api.two.example".to_owned(),
        "e2b_of_https://api.two.example".to_owned(),
    );
    let none = Flags::default();
    assert_eq!(resolved(&none, &[]), one);
    assert_eq!(resolved(&none, &[("SOULBOX_CONTEXT", "two")]), two);
    // E2B's variables lie around; our own variable for a context does not.
    let vendor = ("E2B_API_KEY", "e2b_vendor");
    assert_eq!(resolved(&none, &[("SOULBOX_CONTEXT", "two"), vendor]), two);
    assert_eq!(resolved(&none, &[vendor]).1, "e2b_vendor");
    let ours = [
        ("SOULBOX_API_KEY", "e2b_ours"),
        ("SOULBOX_API_URL", "http://127.0.0.1:1"),
        ("SOULBOX_CONTEXT", "two"),
    ];
    assert_eq!(resolved(&none, &ours).1, "e2b_ours");
    let flag = Flags {
        context: Some("two".to_owned()),
        ..Flags::default()
    };
    assert_eq!(resolved(&flag, &ours), two);
}

#[test]
fn a_contexts_key_never_goes_to_another_address() {
    let home = home_with(Some("one"));
    let flags = Flags {
        api_url: Some("http://10.0.0.1:3000".to_owned()),
        ..Flags::default()
    };
    let variable = [("E2B_API_URL", "http://10.0.0.1:3000")];
    // Where this machine has a server, its key is found instead.
    let by_variable = Config::resolve(&Flags::default(), at_home(&home, &variable));
    let by_flag = Config::resolve(&flags, at_home(&home, &[]));
    for config in [by_variable, by_flag].into_iter().flatten() {
        assert!(!config.api_key.expose().contains("example"));
    }
}

#[test]
fn a_context_brings_its_authority_and_an_unknown_one_is_refused() {
    let home = home_with(None);
    let named = |name: &str| Flags {
        context: Some(name.to_owned()),
        ..Flags::default()
    };
    let one = Config::resolve(&named("one"), at_home(&home, &[])).unwrap();
    assert_eq!(std::fs::read_to_string(one.ca.unwrap()).unwrap(), "PEM");
    assert_eq!(one.key_source.to_string(), "the context one");
    assert_eq!(
        Config::resolve(&named("two"), at_home(&home, &[]))
            .unwrap()
            .ca,
        None
    );
    let refused = Config::resolve(&named("three"), at_home(&home, &[])).unwrap_err();
    assert!(refused.to_string().contains("three") && refused.hint().contains("context ls"));
}
