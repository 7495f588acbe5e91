//! The answers of the admission webhooks: which writes are refused, in the sentences that users
//! know, and what a machine deployment gets that names no profile.
//!
//! What stands in the cluster already is not checked again: a write that leaves a spec as it was,
//! or concerns an object that is being deleted, is allowed whatever the spec says. A release that
//! learns to refuse more then holds up no finalizer and no label.

mod config;
mod machine_deployment;
mod profile;
mod worker_cluster;

use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::effect::{Effect, class, greatest_parts};
use osm_api::change::Class;

pub use self::{
    config::review as review_config,
    machine_deployment::{
        remarks as remarks_on_machine_deployment, review as review_machine_deployment,
    },
    profile::{
        Written, remarks as remarks_on_profile, remarks_on, review as review_profile,
        written as written_profile,
    },
    worker_cluster::{remarks as remarks_on_worker_cluster, review as review_worker_cluster},
};

/// The operation of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Make an object.
    Create,
    /// Change an object.
    Update,
    /// Delete an object.
    Delete,
    /// Connect to an object; nobody does that here.
    Connect,
}

impl Operation {
    /// As the API server writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// One write, before it happens.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The review's own name.
    pub uid: &'a str,
    /// The operation.
    pub operation: Operation,
    /// The object as it would be; `null` for a delete.
    pub object: &'a Json,
    /// The object as it is; `null` for a create.
    pub old_object: &'a Json,
}

impl Asked<'_> {
    /// Returns true if the object is being deleted. Only its metadata can change then.
    fn is_deleting(&self) -> bool {
        let deleted = self.object.pointer("/metadata/deletionTimestamp");
        deleted.is_some_and(|at| !at.is_null())
    }
}

/// The answer to a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It happens.
    Allowed {
        /// Why, where users know a sentence.
        message: Option<String>,
        /// The JSON patch that is applied before; empty means none.
        patch: Vec<Json>,
    },
    /// It does not.
    Refused {
        /// The status code: 400 where the request makes no sense, 403 or 422 where the object does
        /// not.
        code: u16,
        /// Why.
        message: String,
    },
}

impl Answer {
    const fn allowed(message: Option<String>) -> Self {
        Self::Allowed {
            message,
            patch: Vec::new(),
        }
    }

    const fn refused(code: u16, message: String) -> Self {
        Self::Refused { code, message }
    }
}

/// The spec of an object.
fn spec<T: DeserializeOwned>(object: &Json) -> Result<T, serde_json::Error> {
    T::deserialize(object.get("spec").unwrap_or(&Json::Null))
}

/// Returns what `change` would take on running machines; `None` if nothing.
fn effect_remark(change: &str, effects: &[Effect]) -> Option<String> {
    let class = class(effects);
    (class > Class::None).then(|| {
        let parts = greatest_parts(effects);
        format!("on running machines, {change} would take {class}: {parts}; see `osm plan`")
    })
}

#[cfg(test)]
mod tests;
