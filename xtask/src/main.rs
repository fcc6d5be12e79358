//! Odometer's host tool.
fn main() {}
