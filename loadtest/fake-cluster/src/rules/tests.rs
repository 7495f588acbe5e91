//! What the contract cannot show without a change of the definition on the way.

use serde_json::{Value, json};

use super::check;

fn schema() -> Value {
    let text =
        json!({ "type": "string", "x-kubernetes-validations": [{ "rule": "self != 'bad'" }] });
    json!({ "type": "object", "properties": {
        "a": text,
        "list": { "type": "array", "items": text },
        "set": { "type": "array", "items": text, "x-kubernetes-list-type": "set" },
    } })
}

#[track_caller]
fn refused(new: &Value, old: &Value, expected: &[&str]) {
    let causes = check(&schema(), new, Some(old));
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(fields, expected, "{new}");
}

#[test]
fn what_was_wrong_before_may_stay_as_it_was() {
    let old = json!({ "a": "bad", "list": ["bad", "good"] });
    refused(&old, &old, &[]);
    refused(&json!({ "a": "bad", "list": ["good"] }), &old, &[]);
    refused(
        &json!({ "a": "bad", "list": ["good", "bad"] }),
        &old,
        &["list[1]"],
    );
    let old = json!({ "a": "good", "list": ["bad"] });
    refused(&json!({ "a": "bad", "list": ["bad"] }), &old, &["a"]);
    refused(
        &json!({ "a": "good", "list": ["bad"], "set": ["bad"] }),
        &old,
        &["set[0]"],
    );
}

#[test]
fn a_rule_with_an_unknown_function_lets_nothing_pass() {
    let schema = json!({ "type": "string", "x-kubernetes-validations": [{ "rule": "odd(self)" }] });
    let causes = check(&schema, &json!("x"), None);
    let [cause] = causes.as_slice() else {
        panic!("{causes:?}");
    };
    assert!(
        cause.message.contains("Undeclared reference to 'odd'"),
        "{}",
        cause.message
    );
}
