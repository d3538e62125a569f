//! Limits, freezing and accounting through cgroup v1 and v2.
