//! The two seams of SoulBox.
//!
//! - [`Runtime`]: what an isolation tier must do. The node drives it.
//! - [`Node`]: what a machine that runs sandboxes offers. Control plane and proxy use only this,
//!   so that a node may be in this process or, later, behind gRPC. [`BuildNode`] is for builders,
//!   which run beside their node.

mod build_node;
mod error;
mod node;
mod refill;
mod reservation;
mod runtime;
mod runtimes;
mod status;

pub use build_node::BuildNode;
pub use error::{Error, Result};
pub use node::{
    Broken, DiskStream, DiskUse, End, LogEntry, LogLevel, MetricSample, Node, NodeEvent, NotWoken,
    Remedy, Snapshot, Waker,
};
pub use refill::Refill;
pub use reservation::{PoolKey, Release, Reservation, ReservationSource, ReserveRequest, Reserved};
pub use runtime::{
    AddedLayer, Adopted, AfterCheckpoint, ByteStream, Disk, DynStream, Exit, NewSandbox, Origin,
    PREPARED_HOLDS, Running, Runtime, SocketMemory, Started, Stats, TRIAL_MARK,
};
pub use runtimes::Runtimes;
pub use status::{
    MissingChange, Paused, SandboxStatus, StatusCache, StatusChange, StatusSnapshot, Visited,
};
