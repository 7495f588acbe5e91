//! Parts of the manager against servers of the test's own process: what is traced and logged, and
//! what a hostile API server can do to a connection.

mod canary;
#[path = "../rendering/clouds.rs"]
mod clouds;
mod links;
#[path = "../rendering/subject.rs"]
mod subject;
mod telemetry;
