//! A machine that runs sandboxes: state folders, deadlines, adoption, metrics.
