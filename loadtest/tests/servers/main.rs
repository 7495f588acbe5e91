//! Real servers: the control plane that tests start, the contract that the one in memory keeps, and
//! the demo.

mod contract;
mod control_plane;
mod demo;
