//! Holds the files of the repository to each other and to the program: code, manifests, profiles,
//! examples, pages, dashboards and alerts.

mod architecture;
mod attributes;
mod dependencies;
mod docs;
mod examples;
mod manifests;
mod monitoring;
mod packaging;
mod profiles;
#[path = "../rendering/readers.rs"]
mod readers;
#[path = "../rendering/subject.rs"]
mod subject;
