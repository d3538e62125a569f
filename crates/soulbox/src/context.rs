//! The server that a command speaks to, and the sandbox that it speaks of.

use std::path::PathBuf;

use anyhow::Result;
use soulbox_client::{
    Client, Config, Envd, Error,
    config::{BaseUrl, Flags, Source},
    model::{KeyMask, SandboxDetail},
};
use soulbox_types::Secret;

use crate::{
    args::ServerArgs,
    report::advice,
    suggest::{closest, did_you_mean},
};

/// What is as long as this is a whole id, not the beginning of one.
const ID_LENGTH: usize = 21;

#[derive(Debug)]
pub(crate) struct Server {
    pub client: Client,
    /// Of the control plane, and of traffic into sandboxes.
    addresses: (BaseUrl, BaseUrl),
    ca: Option<PathBuf>,
    key: Secret,
    key_source: Source,
}

impl Server {
    pub(crate) fn connect(args: &ServerArgs) -> Result<Self> {
        let config = Config::resolve(&flags(args), variable)?;
        let extra_roots = config
            .ca
            .clone()
            .or_else(|| variable("SSL_CERT_FILE").map(PathBuf::from));
        Ok(Self {
            client: Client::new(&config, extra_roots),
            ca: config.ca,
            addresses: (config.api_url, config.sandbox_url),
            key: config.api_key,
            key_source: config.key_source,
        })
    }

    /// Finds a sandbox by its id or a beginning of it that no other has. Of a whole id the server
    /// knows more than that nothing begins so: when it ended, and why.
    pub(crate) async fn find(&self, name: &str) -> Result<SandboxDetail> {
        check(name)?;
        match self.client.sandbox(name).await {
            Ok(detail) => Ok(detail),
            Err(error) if error.is_not_found() && name.len() < ID_LENGTH => {
                let ids: Vec<String> = self.ids().await?;
                let id = unique("sandbox", "soulbox ls", name, &ids)?;
                Ok(self.client.sandbox(id).await?)
            }
            Err(error) => Err(self.explain(error)),
        }
    }

    /// The id of a sandbox that is there, or of one that has ended: those the server knows by what
    /// happened to them.
    pub(crate) async fn find_ended_too(&self, name: &str) -> Result<String> {
        let error = match self.find(name).await {
            Ok(detail) => return Ok(detail.listed.id),
            Err(error) => error,
        };
        if !is_absent(&error) {
            return Err(error);
        }
        if name.len() >= ID_LENGTH {
            let known = self.client.events(Some(name), 0).await;
            let known = known.map_err(|error| self.explain(error))?;
            return if known.is_empty() {
                Err(error)
            } else {
                Ok(name.to_owned())
            };
        }
        let events = self.client.events(None, 0).await;
        let events = events.map_err(|error| self.explain(error))?;
        let mut ids: Vec<String> = events.into_iter().map(|event| event.sandbox).collect();
        ids.sort();
        ids.dedup();
        match unique("sandbox", "soulbox ls", name, &ids) {
            Ok(id) => Ok(id.to_owned()),
            Err(_) => Err(error),
        }
    }

    /// What the server says of a sandbox that is not there any more; `None`: it never was.
    pub(crate) async fn why_ended(&self, name: &str) -> Option<anyhow::Error> {
        check(name).ok()?;
        if name.len() < ID_LENGTH {
            return None;
        }
        match self.client.sandbox(name).await {
            Err(error) if error.is_not_found() => Some(self.explain(error)),
            _ => None,
        }
    }

    /// For a template that is not there: one with a similar name.
    pub(crate) async fn explain_template(&self, error: Error, name: &str) -> anyhow::Error {
        let unknown = error.is_not_found();
        let refused = self.explain(error);
        if !unknown {
            return refused;
        }
        let templates = self.client.templates().await.unwrap_or_default();
        let names = templates
            .iter()
            .flat_map(|one| one.aliases.iter().chain(&one.names));
        let look = "`soulbox template ls` shows the templates";
        let hint = did_you_mean(name, names.map(String::as_str), look);
        advice(format!("{refused:#}"), hint)
    }

    /// Whether a word that was given where a command or a sandbox is meant is a template: `-t` named
    /// one before it was the terminal.
    pub(crate) async fn is_template(&self, word: &str) -> bool {
        let templates = self.client.templates().await.unwrap_or_default();
        templates.iter().any(|one| one.is_called(word))
    }

    pub(crate) async fn ids(&self) -> Result<Vec<String>> {
        let listed = self
            .client
            .list()
            .await
            .map_err(|error| self.explain(error))?;
        Ok(listed.into_iter().map(|sandbox| sandbox.id).collect())
    }

    pub(crate) async fn enter(&self, name: &str, user: Option<String>) -> Result<Envd> {
        let detail = self.find(name).await?;
        Ok(self
            .client
            .envd(&detail.listed.id, detail.envd_access_token)
            .as_user(user))
    }

    /// For another of our programs, which is to speak with the same server.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let mut set = vec![
            ("SOULBOX_API_URL", self.addresses.0.to_string()),
            ("SOULBOX_SANDBOX_URL", self.addresses.1.to_string()),
            ("SOULBOX_API_KEY", self.key.expose().to_owned()),
        ];
        if let Some(ca) = &self.ca {
            set.push(("SSL_CERT_FILE", ca.to_string_lossy().into_owned()));
        }
        set
    }

    /// Whether this is the key that we show: as sure as its mask is.
    pub(crate) fn uses(&self, mask: &KeyMask) -> bool {
        let key = self.key.expose();
        key.strip_prefix(&mask.prefix).is_some_and(|value| {
            value.starts_with(&mask.masked_value_prefix)
                && value.ends_with(&mask.masked_value_suffix)
        })
    }

    /// A refused key may come from a place that the user forgot about.
    pub(crate) fn explain(&self, error: Error) -> anyhow::Error {
        let refused = matches!(&error, Error::Api(api) if api.status == 401);
        let error = anyhow::Error::from(error);
        if refused {
            error.context(format!("the API key from {} is refused", self.key_source))
        } else {
            error
        }
    }
}

/// What was looked for is not there, or not any more.
fn is_absent(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<Error>() {
        Some(error) => error.is_not_found(),
        None => error.downcast_ref::<Absent>().is_some(),
    }
}

pub(crate) fn flags(args: &ServerArgs) -> Flags {
    Flags {
        api_url: args.api_url.clone(),
        api_key: args.api_key.clone(),
        data_dir: args.data_dir.clone(),
        context: args.context.clone(),
    }
}

pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn check(name: &str) -> Result<()> {
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if name.is_empty() || !name.bytes().all(valid) {
        let hint = "ids are lower-case letters and digits, as `soulbox ls` shows them";
        return Err(advice(format!("{name:?} is not a sandbox id"), hint));
    }
    Ok(())
}

/// Nothing begins so.
#[derive(Debug)]
pub(crate) struct Absent {
    message: String,
    pub(crate) hint: String,
}

impl std::fmt::Display for Absent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Absent {}

/// The one id that begins so. `lister` is the command that shows what there is.
pub(crate) fn unique<'a>(
    kind: &str,
    lister: &str,
    beginning: &str,
    ids: &'a [String],
) -> Result<&'a str> {
    const SHOWN: usize = 5;
    /// Fewer characters are like any id.
    const SURE: usize = 4;
    let matching: Vec<&str> = ids
        .iter()
        .map(String::as_str)
        .filter(|id| id.starts_with(beginning))
        .collect();
    match matching.as_slice() {
        [only] => Ok(only),
        [] => {
            let look = match ids.len() {
                0 => format!("this key has no {kind} at all; `{lister}` shows them"),
                1 => format!("`{lister}` shows the one that there is, with its id"),
                count => format!("`{lister}` shows the {count} that there are, with their ids"),
            };
            // Ids are long: what was typed is compared with as much of them.
            let beginnings: Vec<&str> = ids
                .iter()
                .map(|id| id.get(..beginning.len()).unwrap_or(id))
                .collect();
            let meant = closest(beginning, beginnings.iter().copied())
                .filter(|_| beginning.len() >= SURE)
                .and_then(|meant| beginnings.iter().position(|each| *each == meant));
            let hint = match meant {
                Some(index) => format!("did you mean {}? {look}", ids[index]),
                None => look,
            };
            Err(Absent {
                message: format!("there is no {kind} whose id begins with {beginning}"),
                hint,
            }
            .into())
        }
        many => {
            let shown = many
                .iter()
                .take(SHOWN)
                .copied()
                .collect::<Vec<_>>()
                .join(", ");
            let more = if many.len() > SHOWN { ", …" } else { "" };
            Err(advice(
                format!("{} ids begin with {beginning}: {shown}{more}", many.len()),
                "write some more characters of the id",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_names_an_id_only_while_it_is_unique() {
        let ids = ["iabc", "iabd", "ix"].map(str::to_owned);
        let unique = |beginning| unique("sandbox", "soulbox ls", beginning, &ids);
        assert_eq!(unique("ix").unwrap(), "ix");
        assert_eq!(unique("iabc").unwrap(), "iabc");
        let many = unique("iab").unwrap_err().to_string();
        assert!(many.contains("iabc, iabd"), "{many}");
        let none = unique("z").unwrap_err().to_string();
        assert_eq!(none, "there is no sandbox whose id begins with z");
    }

    #[test]
    fn a_slip_in_the_beginning_of_an_id_is_understood() {
        let ids = ["iabcdefgh", "izzzzzzzz"].map(str::to_owned);
        let hint = |beginning| {
            let error = unique("sandbox", "soulbox ls", beginning, &ids).unwrap_err();
            error.downcast_ref::<Absent>().unwrap().hint.clone()
        };
        assert!(
            hint("iabdc").starts_with("did you mean iabcdefgh? "),
            "{}",
            hint("iabdc")
        );
        assert!(!hint("iq").contains("did you mean"));
    }

    #[test]
    fn a_whole_id_is_told_from_a_beginning_by_its_length() {
        let id = soulbox_types::SandboxId::random();
        assert_eq!(id.as_str().len(), ID_LENGTH);
    }

    #[test]
    fn names_that_are_no_ids_never_reach_the_server() {
        for bad in ["", "../x", "A", "i/x", "é"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_is_known_by_its_mask() {
        let args = ServerArgs {
            api_url: Some("http://127.0.0.1:1".to_owned()),
            api_key: Some(Secret::new("e2b_ab00cdef")),
            data_dir: None,
            context: None,
        };
        let server = Server::connect(&args).unwrap();
        let mask = |first: &str, last: &str| KeyMask {
            prefix: "e2b_".to_owned(),
            value_length: 8,
            masked_value_prefix: first.to_owned(),
            masked_value_suffix: last.to_owned(),
        };
        assert!(server.uses(&mask("ab", "cdef")));
        assert!(!server.uses(&mask("ab", "cdee")) && !server.uses(&mask("00", "cdef")));
    }
}
