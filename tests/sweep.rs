//! The whole manager in one process with its clusters, under a clock that the test turns: crashes
//! between any two calls, days of token renewals, lost events, exact delays.

#[path = "sweep/fixtures.rs"]
mod fixtures;
#[path = "sweep/snapshot.rs"]
mod snapshot;
#[path = "sweep/wire.rs"]
mod wire;
#[path = "sweep/world.rs"]
mod world;

#[path = "sweep/budget.rs"]
mod budget;
#[path = "sweep/burst.rs"]
mod burst;
#[path = "sweep/crash.rs"]
mod crash;
#[path = "sweep/drop_in.rs"]
mod drop_in;
#[path = "sweep/failed_reads.rs"]
mod failed_reads;
#[path = "sweep/fairness.rs"]
mod fairness;
#[path = "sweep/handover.rs"]
mod handover;
#[path = "sweep/health.rs"]
mod health;
#[path = "sweep/hollow_watches.rs"]
mod hollow_watches;
#[path = "sweep/join.rs"]
mod join;
#[path = "sweep/leaks.rs"]
mod leaks;
#[path = "sweep/machines.rs"]
mod machines;
#[path = "sweep/measures.rs"]
mod measures;
#[path = "sweep/node_credentials.rs"]
mod node_credentials;
#[path = "sweep/order.rs"]
mod order;
#[path = "sweep/panics.rs"]
mod panics;
#[path = "sweep/persistent_failures.rs"]
mod persistent_failures;
#[path = "sweep/policies.rs"]
mod policies;
#[path = "sweep/quarantine.rs"]
mod quarantine;
#[path = "sweep/races.rs"]
mod races;
#[path = "sweep/registry.rs"]
mod registry;
#[path = "sweep/replicas.rs"]
mod replicas;
#[path = "sweep/rest.rs"]
mod rest;
#[path = "sweep/restores.rs"]
mod restores;
#[path = "sweep/rollout.rs"]
mod rollout;
#[path = "sweep/scenarios.rs"]
mod scenarios;
#[path = "sweep/stale.rs"]
mod stale;
#[path = "sweep/tokens.rs"]
mod tokens;
#[path = "sweep/unreachable.rs"]
mod unreachable;
#[path = "sweep/unreadable.rs"]
mod unreadable;
#[path = "sweep/upstream.rs"]
mod upstream;
#[path = "sweep/upstream_returns.rs"]
mod upstream_returns;
#[path = "sweep/vanished.rs"]
mod vanished;
