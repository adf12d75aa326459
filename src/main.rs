//! The `probity` binary; everything it does is in `probity-cli`.
fn main() {}
