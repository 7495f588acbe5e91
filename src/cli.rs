//! The commands of `osm`.

pub mod crds;
