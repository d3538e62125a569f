//! The program's options: flags first, then environment variables.

use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) port: u16,
    pub(crate) envd_port: u16,
    /// Where the kernels' own files are.
    pub(crate) files: PathBuf,
    /// Sockets and connection files.
    pub(crate) state: PathBuf,
    /// Where contexts are by default.
    pub(crate) home: PathBuf,
    pub(crate) zygotes: bool,
    /// Start the server again when it ends.
    pub(crate) supervise: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Error {
    #[error(
        "unknown option {0}: the options are --port, --envd-port, --files, --state, --home, --no-zygotes, --supervise, --version"
    )]
    Unknown(String),
    #[error("the option {0} needs a value")]
    Missing(String),
    #[error("the option {0} needs a port number, not {1}")]
    NotAPort(String, String),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 49999,
            envd_port: 49983,
            files: "/usr/lib/soulbox/interpreter".into(),
            state: "/run/soulbox-interpreter".into(),
            home: "/home/user".into(),
            zygotes: true,
            supervise: false,
        }
    }
}

impl Options {
    /// `None` when only the version is asked for.
    pub(crate) fn parse(
        arguments: impl IntoIterator<Item = String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, Error> {
        let mut options = Self::default();
        if let Some(files) = variable("SOULBOX_INTERPRETER_FILES") {
            options.files = files.into();
        }
        let mut arguments = arguments.into_iter();
        while let Some(option) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| Error::Missing(option.clone()))
            };
            let port = |value: String| {
                let refused = |_| Error::NotAPort(option.clone(), value.clone());
                value.parse().map_err(refused)
            };
            match option.as_str() {
                "--port" => options.port = port(value()?)?,
                "--envd-port" => options.envd_port = port(value()?)?,
                "--files" => options.files = value()?.into(),
                "--state" => options.state = value()?.into(),
                "--home" => options.home = value()?.into(),
                "--no-zygotes" => options.zygotes = false,
                "--supervise" => options.supervise = true,
                "--version" => return Ok(None),
                _ => return Err(Error::Unknown(option)),
            }
        }
        Ok(Some(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Option<Options>, Error> {
        Options::parse(arguments.iter().map(ToString::to_string), |_| None)
    }

    #[test]
    fn without_arguments_it_is_what_a_sandbox_needs() {
        let options = parse(&[]).unwrap().unwrap();
        assert_eq!((options.port, options.envd_port), (49999, 49983));
        assert_eq!(options.home, PathBuf::from("/home/user"));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse(&["--port"]), Err(Error::Missing("--port".into())));
        assert_eq!(
            parse(&["--port", "x"]),
            Err(Error::NotAPort("--port".into(), "x".into()))
        );
        assert_eq!(parse(&["-v"]), Err(Error::Unknown("-v".into())));
    }
}
