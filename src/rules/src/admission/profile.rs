//! Reviews of profiles.

use serde_json::Value as Json;

use super::{Answer, Asked, Operation, effect_remark, spec};
use crate::{
    lint,
    profile::{ProfileRefused, check, check_update},
    profile_effects::sample_effects,
};
use osm_api::profile::OperatingSystemProfileSpec as Spec;

const FORBIDDEN: u16 = 403;
const BAD_REQUEST: u16 = 400;
/// A profile with more wrong templates than this has the wrong language.
const ERRORS_REPORTED_MAX: usize = 5;

/// Evaluates a write of a profile: its version if it changes, what can never work, and whether its
/// templates compile. A profile that extends another is not compiled, because its base is not
/// available.
pub fn review(asked: &Asked<'_>) -> Answer {
    let allowed = || {
        let message = format!(
            "operatingSystemProfile validation request {} allowed",
            asked.uid
        );
        Answer::allowed(Some(message))
    };
    match asked.operation {
        Operation::Create | Operation::Update if asked.is_deleting() => allowed(),
        Operation::Create | Operation::Update => match check_spec(asked) {
            Ok(()) => allowed(),
            Err(Fault::Undecodable(message)) => Answer::refused(BAD_REQUEST, message),
            Err(Fault::Denied(why)) => {
                let message = format!(
                    "operatingSystemProfile validation request {} denied: {why}",
                    asked.uid
                );
                Answer::refused(FORBIDDEN, message)
            }
        },
        Operation::Delete => allowed(),
        Operation::Connect => {
            let operation = asked.operation.as_str();
            let message = format!("{operation} not supported on osp resources");
            Answer::refused(BAD_REQUEST, message)
        }
    }
}

enum Fault {
    Undecodable(String),
    Denied(String),
}

impl From<ProfileRefused> for Fault {
    fn from(refused: ProfileRefused) -> Self {
        Self::Denied(refused.to_string())
    }
}

fn check_spec(asked: &Asked<'_>) -> Result<(), Fault> {
    let is_update = asked.operation == Operation::Update;
    if is_update && asked.object.get("spec") == asked.old_object.get("spec") {
        return Ok(());
    }
    let new: Spec = spec(asked.object).map_err(|error| {
        Fault::Undecodable(format!("error occurred while decoding osp: {error}"))
    })?;
    if is_update {
        match spec::<Spec>(asked.old_object) {
            Ok(old) if old == new => return Ok(()),
            Ok(old) => check_update(&old, &new)?,
            // What cannot be read must be possible to correct, under another version.
            Err(_) if version(asked.old_object) == version(asked.object) => {
                return Err(ProfileRefused::SameVersion.into());
            }
            Err(_) => {}
        }
    }
    check(&new)?;
    if new.extends.is_some() {
        return Ok(());
    }
    let errors = lint::compile_errors(&new);
    match errors.len().checked_sub(ERRORS_REPORTED_MAX) {
        _ if errors.is_empty() => Ok(()),
        None | Some(0) => Err(Fault::Denied(errors.join("; "))),
        Some(more) => {
            let reported: Vec<String> = errors.into_iter().take(ERRORS_REPORTED_MAX).collect();
            let message = format!("{}; and {more} more", reported.join("; "));
            Err(Fault::Denied(message))
        }
    }
}

fn version(object: &Json) -> Option<&Json> {
    object.pointer("/spec/version")
}

/// Returns probable mistakes in a profile that may be written, each a sentence: everything that
/// `osm lint` says. It renders samples, which takes its time; nothing of it is a reason to refuse.
pub fn remarks(asked: &Asked<'_>) -> Vec<String> {
    let written = written(asked);
    written.map_or_else(Vec::new, |it| {
        remarks_on(&it.name, (it.before.as_ref(), &it.spec))
    })
}

/// As [`remarks`], of a profile, and of the one before if it is changed: then, what the change
/// takes on running machines comes first.
pub fn remarks_on(name: &str, (before, spec): (Option<&Spec>, &Spec)) -> Vec<String> {
    let effects = before.and_then(|before| sample_effects(name, (before, spec)));
    let effect = effect_remark("the change", &effects.unwrap_or_default());
    effect
        .into_iter()
        .chain(lint::remarks(name, spec))
        .collect()
}

/// A profile that is created or changed.
pub struct Written {
    /// Its name.
    pub name: String,
    /// Its spec.
    pub spec: Spec,
    /// Its spec before, if that can be read.
    pub before: Option<Spec>,
}

/// Returns the profile that is created or changed.
pub fn written(asked: &Asked<'_>) -> Option<Written> {
    let is_write = matches!(asked.operation, Operation::Create | Operation::Update);
    let is_as_before = asked.old_object.get("spec") == asked.object.get("spec");
    if !is_write || is_as_before || asked.is_deleting() {
        return None;
    }
    let name = asked.object.pointer("/metadata/name");
    let name = name.and_then(Json::as_str).unwrap_or_default();
    Some(Written {
        name: name.to_owned(),
        spec: spec(asked.object).ok()?,
        before: spec(asked.old_object).ok(),
    })
}
