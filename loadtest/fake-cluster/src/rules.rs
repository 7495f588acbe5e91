//! Rules in CEL of custom kinds (`x-kubernetes-validations`), with the texts of the real server.
//! kube-cel evaluates them. Left out is what no definition of this project has: reasons, and the
//! keys of lists, whose items it compares by position. A rule that cannot be compiled is found when
//! an object is checked, while the real server refuses its definition.

use std::collections::HashSet;

use kube_cel::{CompiledSchema, ValidationError, compile_schema, validate_compiled};
use serde_json::Value;

/// What a rule says against an object.
#[derive(Debug)]
pub(crate) struct Broken {
    /// The field.
    pub path: String,
    /// Its value, where that is printed: nothing is of objects and lists.
    pub value: Option<Value>,
    /// The rule's message.
    pub message: String,
}

/// The rules of a schema.
#[derive(Debug)]
pub(crate) struct Rules {
    compiled: CompiledSchema,
    /// Rules that report at another field than the one that they look at.
    at_other_fields: HashSet<String>,
}

impl Rules {
    /// Compiles the rules of a schema; nothing where it has none.
    pub(crate) fn compile(schema: &Value) -> Option<Self> {
        let mut compiled = compile_schema(schema);
        let mut at_other_fields = HashSet::new();
        keep_rules(&mut compiled, &mut at_other_fields).then_some(Self {
            compiled,
            at_other_fields,
        })
    }

    /// What the rules say against an object that is new or takes the place of an old one.
    pub(crate) fn check(&self, new: &Value, old: Option<&Value>) -> Vec<Broken> {
        let found = validate_compiled(&self.compiled, new, old);
        let found = found.err().into_iter().flatten();
        found
            .filter_map(|error| self.broken(error, new, old))
            .collect()
    }

    fn broken(&self, error: ValidationError, new: &Value, old: Option<&Value>) -> Option<Broken> {
        let path = error.field_path.trim_start_matches('.');
        let pointer = match path {
            "" => String::new(),
            path => format!("/{}", path.replace('.', "/")),
        };
        let value = new.pointer(&pointer).unwrap_or(&Value::Null);
        let is_here = !self.at_other_fields.contains(&error.rule);
        // What was wrong before may stay so, unless the rule is about the change.
        let is_unchanged = is_here && old.and_then(|old| old.pointer(&pointer)) == Some(value);
        if is_unchanged && !error.rule.contains("oldSelf") {
            return None;
        }
        let is_printed = is_here && !value.is_object() && !value.is_array();
        Some(Broken {
            path: path.to_owned(),
            value: is_printed.then(|| value.clone()),
            message: error.message,
        })
    }
}

/// Forgets the parts without rules, which would be converted for nothing. Returns whether any is
/// left.
fn keep_rules(schema: &mut CompiledSchema, at_other_fields: &mut HashSet<String>) -> bool {
    let compiled = schema.validations.iter().flatten();
    let elsewhere = compiled.filter(|it| it.rule.field_path.is_some());
    at_other_fields.extend(elsewhere.map(|it| it.rule.rule.clone()));
    schema
        .properties
        .retain(|_, inner| keep_rules(inner, at_other_fields));
    for inner in [&mut schema.items, &mut schema.additional_properties] {
        inner.take_if(|inner| !keep_rules(inner, at_other_fields));
    }
    let is_left = [&schema.items, &schema.additional_properties]
        .iter()
        .any(|inner| inner.is_some());
    is_left || !schema.validations.is_empty() || !schema.properties.is_empty()
}
