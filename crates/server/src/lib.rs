//! Listeners, certificates, configuration and wiring of `soulbox serve`.
