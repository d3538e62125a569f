//! E2B's REST interface over the control plane.
