//! Everything of `soulbox serve` but the command line around it.
//!
//! # Layout
//! - [`Settings`], [`Config`]: options from flags, environment and file, and the checked result
//! - [`serve`]: the steps of a start, each with a clear error; `start_progress`: how far it is
//! - `preflight`, `trial`: whether this machine can run sandboxes
//! - `data_dir`, `private_file`: the data folder, its lock and its secrets
//! - `tls`: the local certificate authority, the operator's own certificate, or one of an ACME server
//! - `names`: the name server beside it, and what a machine must be told to find the names
//! - `env_files`, `quick_start`, `program_name`: what a user needs to point E2B's SDKs here
//! - `listen`, `connections`, `dispatch`: from a socket to the control plane or the proxy;
//!   `request_body` keeps connections usable after early answers; `challenges`: an ACME server's questions
//! - `backup`: a copy of the data folder, and a data folder from one
//! - `logging`, `metrics`, `sampled`, `disk_use`, `health`, `admin`: what can be seen from outside
//! - [`dns`], [`keys`]: the small commands beside the server
//! - `offline`: what is done to a data folder while no server runs on it
//! - `wiring`: assembles jail, node, store, control and api

mod admin;
mod backup;
mod builtins;
mod challenges;
mod config;
mod connections;
mod data_dir;
mod disk_use;
mod dispatch;
mod dns;
mod env_files;
mod health;
mod keys;
mod listen;
mod logging;
mod metrics;
mod names;
mod offline;
mod open_files;
mod own_limits;
mod preflight;
mod private_file;
mod program_name;
mod quick_start;
mod request_body;
mod running;
mod sampled;
mod serve;
mod service_manager;
mod start_progress;
mod tls;
mod trial;
mod wiring;

pub use backup::{BackupDone, back_up, restore, verify_backup};
pub use config::{
    AcmeChallenge, AcmeConfig, Admission, Config, ConfigError, Endpoint, LogFormat, Mirror,
    NameServer, ServeArgs, Settings,
};
pub use dns::{DnsArgs, dns};
pub use keys::{KeyStore, KeyStoreError, ListedKey};
pub use offline::{OfflineFolder, keeps_sandboxes};
pub use serve::{serve, shutdown_signal};
pub use service_manager::{NOTIFY_SOCKET, ServiceManager};
pub use soulbox_backup::Progress;
pub use trial::{find_addresses, try_sandbox};
