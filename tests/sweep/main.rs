//! The whole manager in one process with its clusters, under a clock that the test turns: crashes
//! between any two calls, days of token renewals, lost events, exact delays.

mod fixtures;
mod snapshot;
mod wire;
mod world;

mod budget;
mod burst;
mod crash;
mod drop_in;
mod failed_reads;
mod fairness;
mod fleets;
mod handover;
mod health;
mod join;
mod leaks;
mod machines;
mod measures;
mod node_credentials;
mod order;
mod panics;
mod persistent_failures;
mod policies;
mod quarantine;
mod races;
mod registrations;
mod registry;
mod replicas;
mod rest;
mod restores;
mod rollout;
mod scenarios;
mod stale;
mod thin;
mod tokens;
mod unreachable;
mod unreadable;
mod upstream;
mod upstream_returns;
mod vanished;
