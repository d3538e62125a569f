//! The control plane: tenants, keys, and what should run.
