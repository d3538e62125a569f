//! The control plane's tables.
