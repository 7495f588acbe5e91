//! x

pub mod collector;
