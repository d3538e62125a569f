//! The daemon inside every sandbox: processes, terminals, files, watching.

fn main() {}
