//! The two ways into a cluster: a tower service without sockets, and TLS on loopback. Neither knows
//! what a request means.

pub mod tls;
pub mod tower;
