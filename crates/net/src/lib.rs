//! Network slots, firewall and names for sandboxes.
