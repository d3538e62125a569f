//! The six lines that a person reads after the start.

use std::path::Path;

use crate::env_files::{self, Endpoints, reachable};

/// `as_other_user`: the server runs under sudo, and the person's shell cannot read its files.
/// `answers_names`: `soulbox trust` would find what it needs.
/// `program`: what calls this very program in the person's shell.
pub(crate) fn lines(
    data_dir: &Path,
    endpoints: &Endpoints,
    admin: Option<std::net::SocketAddr>,
    answers_names: bool,
    as_other_user: bool,
    program: &str,
) -> [String; 6] {
    let load = |path: std::path::PathBuf| {
        let path = path.display();
        if as_other_user {
            format!("eval \"$(sudo cat {path})\"")
        } else {
            format!(". {path}")
        }
    };
    let http = endpoints.http_url();
    let https = match endpoints.tls_domain() {
        Some(domain) => {
            let trust = if endpoints.needs_local_ca && answers_names {
                format!("{} once, then ", trust(data_dir, as_other_user, program))
            } else {
                String::new()
            };
            let load = load(env_files::tls_path(data_dir));
            format!("{trust}{load} (port URLs: https://<port>-<sandbox>.{domain})")
        }
        None => "off (--https ADDRESS switches it on)".to_owned(),
    };
    let watch = match admin {
        Some(admin) => format!("http://{}/metrics", reachable(admin)),
        None => "off (--admin ADDRESS switches it on)".to_owned(),
    };
    [
        format!("SoulBox is ready on {http}"),
        format!("  1. load the key:  {}", load(env_files::path(data_dir))),
        "  2. try it:        pip install e2b && python3 -c 'from e2b import Sandbox; s = Sandbox.create(); \
         print(s.commands.run(\"echo hello from $(hostname)\").stdout); s.kill()'"
            .to_owned(),
        format!("  names and HTTPS:  {https}"),
        format!("  metrics:          {watch}"),
        format!("  more:             {program} --help, {program} doctor, README.md"),
    ]
}

fn trust(data_dir: &Path, as_other_user: bool, program: &str) -> String {
    let sudo = if as_other_user { "sudo " } else { "" };
    let folder = if data_dir == Path::new("/var/lib/soulbox") {
        String::new()
    } else {
        format!(" --data-dir {}", data_dir.display())
    };
    format!("{sudo}{program} trust{folder}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_name_what_was_really_bound() {
        let endpoints = Endpoints {
            http: "127.0.0.1:4000".parse().unwrap(),
            https: Some("127.0.0.1:4443".parse().unwrap()),
            domain: "sbx.localhost".into(),
            trust: None,
            needs_local_ca: true,
            only_two_names: false,
        };
        let text = lines(
            Path::new("/data"),
            &endpoints,
            "0.0.0.0:4001".parse().ok(),
            true,
            false,
            "./soulbox",
        )
        .join("\n");
        assert_eq!(text.lines().count(), 6);
        for part in [
            "http://127.0.0.1:4000",
            ". /data/env",
            "./soulbox trust --data-dir /data once, then . /data/env.tls",
            "sbx.localhost:4443",
            "127.0.0.1:4001/metrics",
            "./soulbox --help",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let sudo = lines(Path::new("/data"), &endpoints, None, false, true, "soulbox").join("\n");
        assert!(sudo.contains("eval \"$(sudo cat /data/env)\""), "{sudo}");
        assert!(!sudo.contains("trust"), "it would be refused: {sudo}");
    }
}
