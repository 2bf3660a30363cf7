//! The lockwright command (in the making).
fn main() {}
