//! A small client for the E2B interface: what the command line uses.
