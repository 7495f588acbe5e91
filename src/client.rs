//! The client for API servers: transports, limits on responses, budgets, the circuit breaker and
//! watches.

pub mod account;
pub mod clock;
pub mod connect;
pub mod fence;
pub mod forbidden;
pub mod health;
pub mod jitter;
pub mod memory;
pub mod pages;
pub mod permits;
pub mod rate_limit;
pub mod recurring;
pub mod renewable;
mod response_filter;
pub mod retry_delay;
pub mod sent_events;
pub mod statistics;
pub mod tenant_status;
pub mod token;
pub mod transport;
pub mod watch;
pub mod write;
