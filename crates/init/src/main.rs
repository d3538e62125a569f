//! Enters the namespaces of a new sandbox and becomes its first process.

fn main() {}
