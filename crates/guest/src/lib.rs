//! Talks to envd inside a sandbox, from the host.
