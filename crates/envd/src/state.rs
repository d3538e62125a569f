//! What envd holds: settings that `/init` changes, the processes, the watchers, the log.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use soulbox_types::{EnvdConfig, Secret};

use crate::{
    logs::Logs,
    memory::TrimState,
    metrics::{Metrics, Totals},
    process::Table,
    transfer::Transfers,
    users::{self, User},
    watch::Watchers,
};

/// Where programs are looked for when envd was started without a `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const SANDBOX_ID: &str = "E2B_SANDBOX_ID";
const TEMPLATE_ID: &str = "E2B_TEMPLATE_ID";

/// All of envd. It lives in one thread; nothing here is borrowed across an await.
pub(crate) struct Envd {
    pub(crate) settings: RefCell<Settings>,
    pub(crate) node_token: Secret,
    pub(crate) path: String,
    /// The limit on open files that processes get.
    pub(crate) descriptors: Rlimit,
    pub(crate) processes: Table,
    pub(crate) watchers: Watchers,
    pub(crate) logs: Logs,
    pub(crate) trim_state: TrimState,
    pub(crate) metrics: Metrics,
    pub(crate) transfers: Transfers,
    /// The time of the last `/init` that was obeyed.
    pub(crate) initialised_at: Cell<Option<(i64, u32)>>,
}

pub(crate) struct Settings {
    pub(crate) access_token: Option<Secret>,
    pub(crate) default_user: String,
    pub(crate) default_workdir: String,
    /// Set by envd; survives `/init`.
    own_env: BTreeMap<String, String>,
    /// Set by the template and the caller.
    pub(crate) user_env: BTreeMap<String, String>,
}

impl Settings {
    pub(crate) fn set_own_env(&mut self, name: &str, value: String) {
        self.own_env.insert(name.to_owned(), value);
    }

    pub(crate) fn set_ids(&mut self, sandbox: Option<String>, template: Option<String>) {
        for (name, id) in [(SANDBOX_ID, sandbox), (TEMPLATE_ID, template)] {
            if let Some(id) = id {
                self.set_own_env(name, id);
            }
        }
    }

    /// The sandbox's and the template's.
    pub(crate) fn ids(&self) -> (String, String) {
        let id = |name| self.own_env.get(name).cloned().unwrap_or_default();
        (id(SANDBOX_ID), id(TEMPLATE_ID))
    }

    /// Variables of every process.
    pub(crate) fn env(&self) -> BTreeMap<String, String> {
        let mut env = self.own_env.clone();
        env.extend(self.user_env.clone());
        env
    }
}

/// Every process costs envd up to four descriptors. Returns the limit as it was.
fn raise_descriptor_limit() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    let _as_it_was = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: before.maximum,
            maximum: before.maximum,
        },
    );
    before
}

impl Envd {
    pub(crate) fn new(config: EnvdConfig) -> Self {
        let own_env = BTreeMap::from([
            ("E2B_SANDBOX".to_owned(), "true".to_owned()),
            (SANDBOX_ID.to_owned(), config.sandbox_id.clone()),
            (TEMPLATE_ID.to_owned(), config.template_id.clone()),
        ]);
        let path = std::env::var("PATH").ok().filter(|path| !path.is_empty());
        Self {
            metrics: Metrics::new(Totals {
                memory: config.memory_bytes,
                cpus: config.cpu_count,
                disk: config.disk_bytes,
            }),
            node_token: config.node_token,
            path: path.unwrap_or_else(|| DEFAULT_PATH.to_owned()),
            descriptors: raise_descriptor_limit(),
            settings: RefCell::new(Settings {
                access_token: config.access_token,
                default_user: config.default_user,
                default_workdir: config.default_workdir,
                own_env,
                user_env: config.env,
            }),
            processes: Table::default(),
            watchers: Watchers::default(),
            logs: Logs::default(),
            trim_state: TrimState::default(),
            transfers: Transfers::default(),
            initialised_at: Cell::new(None),
        }
    }

    /// The account that a request works as: the named one, or the default.
    pub(crate) fn user(&self, name: Option<&str>) -> Result<User, users::Error> {
        match name.filter(|name| !name.is_empty()) {
            Some(name) => users::lookup(name),
            None => users::lookup(&self.settings.borrow().default_user),
        }
    }

    pub(crate) fn default_workdir(&self) -> String {
        self.settings.borrow().default_workdir.clone()
    }
}
