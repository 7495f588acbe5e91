//! The API server in memory: the contract that it keeps, what only it can do, and kubectl with it.

mod contract;
mod faults;
mod kubectl;
mod tls_client;
