//! The fleet page of the real binary: what it tells of tenants, and to whom.

use osm::api::names::PROFILE;
use osm::api::worker_cluster::WorkerCluster;
use serde_json::Value;

use crate::suite::fixtures::{a_machine_deployment, with_annotation};
use crate::suite::life::page;
use crate::suite::process::Binary;
use crate::suite::server::ok;
use crate::suite::stage::{Stage, Tenant};
use crate::suite::wait;
use crate::suite::world::World;
