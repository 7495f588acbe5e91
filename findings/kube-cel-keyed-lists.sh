#!/bin/bash
# Version: kube-cel 0.8.0 from crates.io, with its feature "validation"; serde_json 1.0.154.
#
# Behaviour: a transition rule below a list gets the old item of the same position as `oldSelf`, also
# where the schema says `x-kubernetes-list-type: map`.
#
# Expected: the old item of the same key. "CRD validation rules" of the Kubernetes documentation
# say that items of such a list are correlated by their keys, and the crate's README says that its
# answers are the API server's, or stricter where it lists a difference; it does not list this one.
#
# Seen: an update that moves an item and changes nothing else breaks "a count never falls".
#
# Here: no definition of ours has a rule inside of a list.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
cat > "$folder/Cargo.toml" << 'EOF'
[package]
name = "keyed"
version = "0.0.0"
edition = "2021"
[dependencies]
kube-cel = { version = "=0.8.0", features = ["validation"] }
serde_json = "=1.0.154"
EOF
cat > "$folder/src/main.rs" << 'EOF'
use kube_cel::{compile_schema, validate_compiled};
use serde_json::json;

fn main() {
    let schema = json!({"type": "object", "properties": {"shelves": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {
            "name": {"type": "string"},
            "count": {"type": "integer", "x-kubernetes-validations": [
                {"rule": "self >= oldSelf", "message": "a count never falls"}]}}}}}});
    let rules = compile_schema(&schema);
    let [a, b] = [json!({"name": "a", "count": 5}), json!({"name": "b", "count": 1})];
    let old = json!({"shelves": [a, b]});
    for (what, new) in [("unchanged", json!([a, b])), ("moved", json!([b, a]))] {
        let found = validate_compiled(&rules, &json!({"shelves": new}), Some(&old));
        match found {
            Ok(()) => println!("{what}: kept"),
            Err(broken) => broken.iter().for_each(|it| println!("{what}: {}: {}", it.field_path, it.message)),
        }
    }
}
EOF
seen="$(cargo run --quiet --manifest-path "$folder/Cargo.toml")"
echo "$seen"
[ "$seen" = "unchanged: kept
moved: shelves[0].count: a count never falls" ]
