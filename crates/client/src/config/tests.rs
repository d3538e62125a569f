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
        api_url: None,
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
