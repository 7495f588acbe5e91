//! The `osm` command.
fn main() {}
