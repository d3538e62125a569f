//! The jail tier: namespaces, idmapped overlays, seccomp and cgroups.
