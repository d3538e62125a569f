//! A machine that runs sandboxes: state folders, deadlines, adoption, metrics, logs.
//!
//! ```text
//!            create               pause, deadline
//!  (nothing) ──────► Creating ──► Running ⇄ Paused ──► Destroying ──► (nothing)
//!                        │           │ resume, traffic     ▲
//!                        └── failed ─┴── destroy, death ───┘
//! ```
//!
//! One supervisor task per sandbox drives it from Running on; `create` and `destroy` run in tasks
//! of their own, so that a caller who goes away leaves nothing half-done. What is on disk
//! ([`folder`]) is always enough to continue after a SIGKILL.
//!
//! # Layout
//! - `folder`: the state folder of one sandbox
//! - `entries`, `entry`: all sandboxes in memory, and one of them
//! - `local`: [`LocalNode`], the node of this process
//! - `creates`: creates that are under way
//! - `admission`: whether one more sandbox fits
//! - `adopt`: finding what survived
//! - `stuck_ends`: whether the kernel still ends processes
//! - `settle`: undoing what a failed pause or resume has begun
//! - `transition`: which state may follow which
//! - `quarantine`: what is there and cannot be used; `broken_disk`: its disk, to be read
//! - `supervise`: deadline and death; `pause`: pause and resume; `network`: new rules
//! - `snapshots`, `capture`: files at one moment, kept apart from the sandbox
//! - `backup`: a copy from which another server brings a sandbox back
//! - `export`: what a build's sandbox added to its template
//! - `ready`: a template's start command and ready check
//! - `pool`: sandboxes that wait for a user; `reserve`: what is kept for a create that comes
//! - `disk_guard`: pauses those that would fill the machine's disk
//! - `out_of_memory`: what the kernel killed for lack of memory, told
//! - `memory_guard`: ends those that hold memory which no limit covers
//! - `metrics`, `logs`: what users ask about it; `node_stats`: what operators do

mod admission;
mod adopt;
mod backup;
mod broken_disk;
mod capture;
mod creates;
mod disk_guard;
mod ends;
mod entries;
mod entry;
mod export;
mod folder;
mod local;
mod logs;
mod memory_guard;
mod metrics;
mod network;
mod node_stats;
mod out_of_memory;
mod pause;
mod pool;
mod quarantine;
mod ready;
mod reserve;
mod settle;
mod snapshots;
mod stuck_ends;
mod supervise;
mod transition;

pub use admission::{
    AdmissionConfig, AdmissionStats, Gauge, Level, MachineGauge, Overcommit, Reading, Resource,
    SliceError,
};
pub use backup::{CopiedState, StoppedSandbox, back_up_end, stopped_sandboxes};
pub use local::{LocalNode, NodeConfig};
pub use memory_guard::KernelMemory;
pub use node_stats::{DiskStats, NodeStats};
pub use pool::{PoolConfig, PoolStats};
