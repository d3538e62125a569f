//! The data path: from a client's request to a port inside a sandbox.
