//! Container images: pulled from registries, unpacked once, shared by content.
//!
//! Everything that comes from outside is hostile here: the reference, the registry, every byte of
//! a layer. See `docs/templates.md`, "Images".
//!
//! # Layout
//! - `config`, `credentials`, `progress`, `image`, `error`: what callers see
//! - `reference`, `digest`, `manifest`: the OCI distribution types
//! - `registry`: the network side
//! - `layer`: from a compressed tar to a directory
//! - `store`: the layer folder, who uses which layer, and garbage collection
//! - `pull`, `import`: the two ways in

mod config;
mod credentials;
mod digest;
mod error;
mod image;
mod import;
mod layer;
mod manifest;
mod progress;
mod pull;
mod reference;
mod registry;
mod store;

pub use config::{ImageConfig, Timeouts};
pub use credentials::Credentials;
pub use error::{Error, Result};
pub use image::Image;
pub use layer::LayerError;
pub use progress::Progress;
pub use store::ImageStore;
