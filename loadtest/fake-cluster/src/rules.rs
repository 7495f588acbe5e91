//! Rules in CEL of custom kinds (`x-kubernetes-validations`), with the texts of the real server.
//! Left out: type checks and cost limits, for which the real server refuses a definition, the order
//! of sets and keyed lists in comparisons (which counts here), the functions for URLs, and rules
//! inside `allOf` and its like.

use serde_json::{Map, Value, json};

use crate::{
    meta::{items, text, texts},
    schema::{field, flag},
    status::Cause,
};
use eval::{Failure, OldSelf, Scope};

mod eval;
#[cfg(test)]
mod tests;

const RULES: &str = "/x-kubernetes-validations";

/// Whether a schema has any rule.
pub(crate) fn are_in(schema: &Value) -> bool {
    !items(schema, RULES).is_empty() || parts(schema).any(|(_, inner)| are_in(inner))
}

/// The schemas directly inside a schema, with what they are called in the paths of definitions.
fn parts(schema: &Value) -> impl Iterator<Item = (String, &Value)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten();
    let single = ["items", "additionalProperties"].into_iter();
    properties
        .map(|(name, inner)| (format!("properties[{name}]"), inner))
        .chain(single.filter_map(|name| Some((name.to_owned(), schema.get(name)?))))
}

/// Whether an error keeps the rules from being looked at.
pub(crate) fn is_blocking(cause: &Cause) -> bool {
    matches!(
        cause.reason,
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
    )
}

/// Tells that the rules were not looked at.
pub(crate) fn unchecked() -> Cause {
    let detail = "some validation rules were not checked because the object was invalid; correct \
                  the existing errors to complete validation";
    Cause::invalid(NO_PATH, &Value::Null, detail)
}

/// How the real server prints the path of the whole object.
const NO_PATH: &str = "<nil>";

/// Rules of a schema that cannot be compiled, by their place in the definition.
pub(crate) fn uncompilable(schema: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, rule) in items(schema, RULES).iter().enumerate() {
        for name in ["rule", "messageExpression"] {
            if let Some(Err(error)) = rule.get(name).and_then(Value::as_str).map(eval::program) {
                let place = format!("{path}.x-kubernetes-validations[{index}].{name}");
                let detail = format!("compilation failed: {error}");
                causes.push(Cause::invalid(&place, rule, &detail));
            }
        }
    }
    for (name, inner) in parts(schema) {
        causes.extend(uncompilable(inner, &format!("{path}.{name}")));
    }
    causes
}

/// What the rules of a schema say against an object that is new or takes the place of an old one.
pub(crate) fn check(schema: &Value, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let place = Place {
        path: "",
        old,
        unchanged: old == Some(new),
    };
    visit(new, schema, &place, &mut causes);
    causes
}

struct Place<'a> {
    path: &'a str,
    /// The old value, where it can be told which one that is.
    old: Option<&'a Value>,
    /// Whether the value, or the nearest one around it that can be compared, is as it was.
    unchanged: bool,
}

impl Place<'_> {
    fn inside<'a>(&self, path: &'a str, value: &Value, old: Option<&'a Value>) -> Place<'a> {
        Place {
            path,
            old,
            unchanged: old.map_or(self.unchanged, |old| old == value),
        }
    }
}

fn visit(value: &Value, schema: &Value, place: &Place<'_>, causes: &mut Vec<Cause>) {
    let rules = items(schema, RULES);
    if !rules.is_empty() {
        let scope = Scope::new(value, place.old, schema);
        causes.extend(
            rules
                .iter()
                .filter_map(|rule| evaluate(rule, &scope, place)),
        );
    }
    match value {
        Value::Object(object) => visit_object(object, schema, place, causes),
        Value::Array(list) => visit_list(list, schema, place, causes),
        _ => {}
    }
}

fn visit_object(
    object: &Map<String, Value>,
    schema: &Value,
    place: &Place<'_>,
    causes: &mut Vec<Cause>,
) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional = schema.get("additionalProperties");
    for (name, value) in object {
        let known = properties.and_then(|known| known.get(name));
        let (path, inner) = match (known, additional) {
            (Some(inner), _) => (field(place.path, name), inner),
            (None, Some(inner)) => (format!("{}[{name}]", place.path), inner),
            (None, None) => continue,
        };
        let old = place.old.and_then(|old| old.get(name));
        visit(value, inner, &place.inside(&path, value, old), causes);
    }
}

fn visit_list(list: &[Value], schema: &Value, place: &Place<'_>, causes: &mut Vec<Cause>) {
    let Some(inner) = schema.get("items") else {
        return;
    };
    // Only items with keys can be found again in the old list.
    let keyed = text(schema, "/x-kubernetes-list-type") == "map";
    let keys = texts(schema, "/x-kubernetes-list-map-keys");
    let before = place.old.and_then(Value::as_array).filter(|_| keyed);
    for (index, value) in list.iter().enumerate() {
        let old = before.and_then(|before| {
            let same = |old: &&Value| keys.iter().all(|key| old.get(key) == value.get(key));
            before.iter().find(same)
        });
        let path = format!("{}[{index}]", place.path);
        visit(value, inner, &place.inside(&path, value, old), causes);
    }
}

/// What one rule says against one value.
fn evaluate(rule: &Value, scope: &Scope<'_>, place: &Place<'_>) -> Option<Cause> {
    let source = text(rule, "/rule");
    let program = eval::program(source).ok()?;
    let transition = program.references().has_variable("oldSelf");
    let old_self = old_self(rule);
    if transition && old_self == OldSelf::Plain && place.old.is_none() {
        return None;
    }
    // What was wrong before may stay so.
    if !transition && place.unchanged {
        return None;
    }
    match scope.holds(&program, old_self) {
        Ok(true) => None,
        Ok(false) => Some(broken(rule, scope, place)),
        Err(failure) => {
            let why = told(rule).unwrap_or(source.trim());
            let detail = match failure {
                Failure::Overload => format!(
                    "'no such overload': call arguments did not match a supported operator, \
                     function or macro signature for rule: {why}"
                ),
                Failure::Other(error) => format!("{error} evaluating rule: {why}"),
            };
            let shown = json!(scope.declared_type());
            Some(Cause::invalid(path_text(place.path), &shown, &detail))
        }
    }
}

fn old_self(rule: &Value) -> OldSelf {
    if flag(rule, "optionalOldSelf") {
        OldSelf::Optional
    } else {
        OldSelf::Plain
    }
}

/// The message of a rule.
fn told(rule: &Value) -> Option<&str> {
    rule.get("message").and_then(Value::as_str).map(str::trim)
}

fn path_text(path: &str) -> &str {
    if path.is_empty() { NO_PATH } else { path }
}

fn broken(rule: &Value, scope: &Scope<'_>, place: &Place<'_>) -> Cause {
    let source = text(rule, "/rule").trim();
    let expression = text(rule, "/messageExpression");
    let detail = Some(expression)
        .filter(|expression| !expression.is_empty())
        .and_then(|expression| eval::program(expression).ok())
        .and_then(|program| scope.text(&program, old_self(rule)))
        .filter(|message| !message.is_empty() && !message.contains('\n'))
        .or_else(|| told(rule).map(str::to_owned))
        .unwrap_or_else(|| format!("failed rule: {source}"));
    let below = text(rule, "/fieldPath");
    let below = below.strip_prefix('.').unwrap_or(below);
    let path = if below.is_empty() {
        place.path.to_owned()
    } else {
        field(place.path, below)
    };
    let path = path_text(&path);
    let part = scope.value.is_object() || scope.value.is_array();
    match text(rule, "/reason") {
        "FieldValueForbidden" => Cause::forbidden(path, &detail),
        "FieldValueRequired" => Cause::required(path, &detail),
        "FieldValueDuplicate" => Cause::duplicate(path, (!part).then_some(scope.value)),
        _ if part => Cause::invalid_part(path, &detail),
        _ => Cause::invalid(path, scope.value, &detail),
    }
}
