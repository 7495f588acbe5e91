//! How rules in CEL of custom resources behave: the words and fields of refusals, rules about the
//! state before, and the rules of this project's own definitions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as ext;
use kube::{
    Client,
    api::{Api, DynamicObject, Patch, PatchParams, PostParams},
    core::Status,
};
use serde_json::{Value, json};

use super::{api, code_of, created, custom::install, merged, merged_status, object, refusal};

fn rule(rule: &str) -> Value {
    json!([{ "rule": rule }])
}

fn definition() -> Value {
    let text = |rules: Value| json!({ "type": "string", "maxLength": 9, "x-kubernetes-validations": rules });
    let numbers = json!({ "type": "object", "required": ["k"], "properties": {
        "k": { "type": "string", "maxLength": 9 },
        "v": { "type": "integer", "x-kubernetes-validations":
            [{ "rule": "self >= oldSelf", "message": "may not fall" }] },
    } });
    let spec = json!({
        "type": "object",
        "required": ["min", "max"],
        "properties": {
            "min": { "type": "integer" },
            "max": { "type": "integer", "maximum": 5000 },
            "fixed": { "type": "string", "maxLength": 9 },
            "odd-name": { "type": "string", "maxLength": 9 },
            "__my_field": { "type": "string", "maxLength": 9 },
            "lazy": text(json!([{ "rule": "self == oldSelf.orValue(self)",
                "message": "lazy", "optionalOldSelf": true }])),
            "words": text(json!([{ "rule": "self == 'a'", "message": "fall",
                "messageExpression": "self.substring(0, 2)" }])),
            "port": { "x-kubernetes-int-or-string": true, "x-kubernetes-validations":
                rule("type(self) == int ? self > 0 : self.size() > 0") },
            "ratio": { "type": "number", "x-kubernetes-validations": rule("self > 0.5") },
            "when": { "type": "string", "format": "date-time",
                "x-kubernetes-validations": rule("self.getFullYear() > 2000") },
            "divisor": { "type": "integer", "x-kubernetes-validations": rule("10 / self > 0") },
            "limits": { "type": "object", "maxProperties": 9,
                "additionalProperties": text(rule("self.startsWith('x')")) },
            "keys": { "type": "object", "maxProperties": 9,
                "additionalProperties": { "type": "string", "maxLength": 9 },
                "x-kubernetes-validations": [{ "rule": "self['a'] == 'b'", "message": "a is b" }] },
            "list": { "type": "array", "maxItems": 9, "items": text(rule("self != 'bad'")),
                "x-kubernetes-validations": rule("self[0] == 'a'") },
            "parts": { "type": "array", "maxItems": 9, "items": numbers,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"] },
        },
        "x-kubernetes-validations": [
            { "rule": "self.min <= self.max" },
            { "rule": "self.min <= 100", "message": "static",
              "messageExpression": "'min is ' + (self.min > 200 ? 'far ' : '') + 'over 100'" },
            { "rule": "self.max <= 1000", "message": " too much ",
              "reason": "FieldValueForbidden", "fieldPath": ".max" },
            { "rule": "self.max != 7", "message": "seven is needed",
              "reason": "FieldValueRequired", "fieldPath": ".max" },
            { "rule": "self.max != 8", "message": "eight again",
              "reason": "FieldValueDuplicate", "fieldPath": ".max" },
            { "rule": "!has(self.odd__dash__name)" },
            { "rule": "!has(self.__underscores__my_field)" },
        ],
    });
    let seen = "!has(oldSelf.seen) || has(self.seen) && self.seen >= oldSelf.seen";
    let status = json!({
        "type": "object",
        "properties": { "seen": { "type": "integer" } },
        "x-kubernetes-validations":
            [{ "rule": seen, "message": "seen may not fall", "fieldPath": ".seen" }],
    });
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": { "spec": spec, "status": status },
        "x-kubernetes-validations": [
            { "rule": "self.metadata.name != 'bad'" },
            { "rule": "!has(oldSelf.spec.fixed) || self.spec.fixed == oldSelf.spec.fixed",
              "message": "fixed is fixed", "fieldPath": ".spec.fixed" },
        ],
    });
    kind("ruled", "Ruled", &schema)
}

fn kind(singular: &str, kind: &str, schema: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{singular}s.contract.example.com") },
        "spec": {
            "group": "contract.example.com",
            "scope": "Namespaced",
            "names": { "plural": format!("{singular}s"), "kind": kind },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema },
                "subresources": { "status": {} },
            }],
        },
    })
}

async fn installed(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let ruled = api(client, namespace, "contract.example.com/v1/Ruled/ruleds");
    install(client, &definition(), &ruled).await;
    ruled
}

fn ruled(name: &str, spec: &Value) -> DynamicObject {
    let mut whole = json!({ "min": 1, "max": 2 });
    json_patch::merge(&mut whole, spec);
    object(json!({
        "apiVersion": "contract.example.com/v1",
        "kind": "Ruled",
        "metadata": { "name": name },
        "spec": whole,
    }))
}

/// The causes of a refusal as `field: message`, in an order of their own: the real server goes
/// through maps in any order.
fn causes(refused: &Status) -> Vec<String> {
    assert_eq!(code_of(refused), (422, "Invalid"));
    let details = refused.details.as_ref().expect("it has details");
    let mut causes: Vec<String> = details
        .causes
        .iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    causes.sort();
    if let [one] = causes.as_slice() {
        assert!(refused.message.ends_with(one), "{}", refused.message);
    }
    causes
}

/// As [`causes`], of an object that is not created.
async fn causes_of_creating(objects: &Api<DynamicObject>, new: &DynamicObject) -> Vec<String> {
    causes(&refusal(objects.create(&PostParams::default(), new).await))
}

/// A rule speaks in its message, in what its expression makes, or in itself; scalars are printed,
/// objects and lists are not, and what has no answer tells the declared type.
pub async fn a_broken_rule_is_refused_in_its_own_words(client: &Client, namespace: &str) {
    let objects = installed(client, namespace).await;
    assert_eq!(
        causes_of_creating(&objects, &ruled("bad", &json!({}))).await,
        ["<nil>: Invalid value: failed rule: self.metadata.name != 'bad'"]
    );
    for (spec, expected) in broken_by_rules().into_iter().chain(broken_in_fields()) {
        let found = causes_of_creating(&objects, &ruled("a", &spec)).await;
        assert_eq!(found, [expected], "{spec}");
    }
    let two = json!({ "min": 101, "list": ["a", "bad"] });
    let found = causes_of_creating(&objects, &ruled("a", &two)).await;
    let expected = [
        "spec.list[1]: Invalid value: \"bad\": failed rule: self != 'bad'",
        "spec: Invalid value: failed rule: self.min <= self.max",
        "spec: Invalid value: min is over 100",
    ];
    assert_eq!(found, expected);
}

/// By a rule of the whole spec.
fn broken_by_rules() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({ "max": 0 }),
            "spec: Invalid value: failed rule: self.min <= self.max",
        ),
        (
            json!({ "min": 300, "max": 301 }),
            "spec: Invalid value: min is far over 100",
        ),
        (json!({ "max": 2000 }), "spec.max: Forbidden: too much"),
        (
            json!({ "max": 7 }),
            "spec.max: Required value: seven is needed",
        ),
        (json!({ "max": 8 }), "spec.max: Duplicate value"),
        (
            json!({ "odd-name": "x" }),
            "spec: Invalid value: failed rule: !has(self.odd__dash__name)",
        ),
        (
            json!({ "__my_field": "x" }),
            "spec: Invalid value: failed rule: !has(self.__underscores__my_field)",
        ),
    ]
}

/// By a rule of one field.
fn broken_in_fields() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({ "words": "bcd" }),
            "spec.words: Invalid value: \"bcd\": bc",
        ),
        (
            json!({ "words": "b" }),
            "spec.words: Invalid value: \"b\": fall",
        ),
        (
            json!({ "port": 0 }),
            "spec.port: Invalid value: 0: failed rule: type(self) == int ? self > 0 : \
             self.size() > 0",
        ),
        (
            json!({ "port": "" }),
            "spec.port: Invalid value: \"\": failed rule: type(self) == int ? self > 0 : \
             self.size() > 0",
        ),
        (
            json!({ "ratio": 0 }),
            "spec.ratio: Invalid value: 0: failed rule: self > 0.5",
        ),
        (
            json!({ "ratio": 0.5 }),
            "spec.ratio: Invalid value: 0.5: failed rule: self > 0.5",
        ),
        (
            json!({ "when": "1999-01-01T00:00:00Z" }),
            "spec.when: Invalid value: \"1999-01-01T00:00:00Z\": failed rule: \
             self.getFullYear() > 2000",
        ),
        (
            json!({ "divisor": 0 }),
            "spec.divisor: Invalid value: \"integer\": division by zero evaluating rule: \
             10 / self > 0",
        ),
        (
            json!({ "limits": { "a.b/c": "y" } }),
            "spec.limits[a.b/c]: Invalid value: \"y\": failed rule: self.startsWith('x')",
        ),
        (
            json!({ "keys": { "a": "c" } }),
            "spec.keys: Invalid value: a is b",
        ),
        (
            json!({ "keys": { "b": "c" } }),
            "spec.keys: Invalid value: \"object\": no such key: a evaluating rule: a is b",
        ),
        (
            json!({ "list": [] }),
            "spec.list: Invalid value: \"array\": index out of bounds: 0 evaluating rule: \
             self[0] == 'a'",
        ),
    ]
}

/// `oldSelf` is the state before, found by key in keyed lists; there is none for what is new.
pub async fn a_rule_about_the_state_before_holds_for_every_way_to_write(
    client: &Client,
    namespace: &str,
) {
    let objects = installed(client, namespace).await;
    let parts = json!([{ "k": "a", "v": 5 }, { "k": "b", "v": 1 }]);
    let spec = json!({ "fixed": "f", "lazy": "l", "parts": parts });
    let mut made = created(&objects, &ruled("a", &spec)).await;
    let params = PatchParams::default();
    let fixed = ["spec.fixed: Invalid value: fixed is fixed"];
    let change = json!({ "spec": { "fixed": "g" } });
    let patched = objects.patch("a", &params, &Patch::Merge(&change)).await;
    assert_eq!(causes(&refusal(patched)), fixed);
    let forced = PatchParams::apply("contract").force();
    let applied = ruled("a", &json!({ "fixed": "g" }));
    let applied = objects.patch("a", &forced, &Patch::Apply(&applied)).await;
    assert_eq!(causes(&refusal(applied)), fixed);
    json_patch::merge(&mut made.data, &change);
    let replaced = objects.replace("a", &PostParams::default(), &made).await;
    assert_eq!(causes(&refusal(replaced)), fixed);
    for (spec, expected) in [
        (
            json!({ "lazy": "m" }),
            "spec.lazy: Invalid value: \"m\": lazy",
        ),
        (
            json!({ "parts": [{ "k": "b", "v": 2 }, { "k": "a", "v": 4 }] }),
            "spec.parts[1].v: Invalid value: 4: may not fall",
        ),
    ] {
        let change = Patch::Merge(json!({ "spec": spec }));
        let refused = refusal(objects.patch("a", &params, &change).await);
        assert_eq!(causes(&refused), [expected]);
    }
    let parts = json!([{ "k": "c", "v": 0 }, { "k": "b", "v": 2 }, { "k": "a", "v": 5 }]);
    merged(&objects, "a", json!({ "spec": { "parts": parts } })).await;
    let seen = |seen: Value| json!({ "status": { "seen": seen } });
    merged_status(&objects, "a", seen(json!(3))).await;
    for less in [json!(2), Value::Null] {
        let refused = refusal(
            objects
                .patch_status("a", &params, &Patch::Merge(seen(less)))
                .await,
        );
        assert_eq!(
            causes(&refused),
            ["status.seen: Invalid value: seen may not fall"]
        );
    }
}

/// Rules are not asked about an object whose shape is wrong, and the refusal says so.
pub async fn a_rule_waits_for_a_valid_object(client: &Client, namespace: &str) {
    let objects = installed(client, namespace).await;
    let create = async |spec: Value| causes_of_creating(&objects, &ruled("a", &spec)).await;
    let unchecked = "<nil>: Invalid value: null: some validation rules were not checked because \
                     the object was invalid; correct the existing errors to complete validation";
    assert_eq!(
        create(json!({ "min": 9, "max": null })).await,
        [unchecked, "spec.max: Required value"]
    );
    assert_eq!(
        create(json!({ "min": 9, "fixed": "0123456789" })).await,
        [
            unchecked,
            "spec.fixed: Too long: may not be more than 9 bytes"
        ]
    );
    // A value out of its range says nothing against the rules.
    assert_eq!(
        create(json!({ "max": 6000 })).await,
        [
            "spec.max: Forbidden: too much",
            "spec.max: Invalid value: 6000: spec.max in body should be less than or equal to 5000",
        ]
    );
}

/// A rule that cannot be read is refused with its place in the definition.
pub async fn a_definition_with_an_unreadable_rule_is_refused(client: &Client, _namespace: &str) {
    let definitions: Api<ext::CustomResourceDefinition> = Api::all(client.clone());
    let spec = json!({ "type": "object", "properties": { "a": { "type": "integer" } },
        "x-kubernetes-validations": rule("self.a <=") });
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    let patch = Patch::Apply(kind("unreadable", "Unreadable", &schema));
    let params = PatchParams::apply("contract").force();
    let answer = definitions
        .patch("unreadables.contract.example.com", &params, &patch)
        .await;
    let refused = causes(&refusal(answer));
    let [cause] = refused.as_slice() else {
        super::unexpected(&refused.join(", "));
    };
    let place = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule";
    let error = "compilation failed: ERROR: <input>:1:10: Syntax error: mismatched input";
    assert!(cause.starts_with(place), "{cause}");
    assert!(cause.contains(error), "{cause}");
}

/// A configuration never changes, and a profile changes only with its version.
pub async fn the_rules_of_this_project_hold(client: &Client, namespace: &str) {
    let own = [
        include_str!("../../../../manifests/crds/operatingsystemconfigs.yaml"),
        include_str!("../../../../manifests/crds/operatingsystemprofiles.yaml"),
    ]
    .map(|manifest| serde_saphyr::from_str::<Value>(manifest).expect("it is YAML"));
    let kinds = ["OperatingSystemConfig", "OperatingSystemProfile"].map(|kind| {
        let plural = format!("{}s", kind.to_lowercase());
        let kind = format!("operatingsystemmanager.k8c.io/v1alpha1/{kind}/{plural}");
        api(client, namespace, &kind)
    });
    for (definition, objects) in own.iter().zip(&kinds) {
        install(client, definition, objects).await;
    }
    let [configs, profiles] = kinds;
    let specs = [
        json!({ "osName": "ubuntu", "osVersion": "22.04", "cloudProvider": { "name": "aws" },
            "bootstrapConfig": {}, "provisioningConfig": {} }),
        json!({ "osName": "ubuntu", "osVersion": "22.04", "version": "v1.0.0",
            "supportedCloudProviders": [{ "name": "aws" }],
            "bootstrapConfig": {}, "provisioningConfig": {} }),
    ];
    let [config, profile] = specs;
    create_own(&configs, "OperatingSystemConfig", &config).await;
    create_own(&profiles, "OperatingSystemProfile", &profile).await;
    let params = PatchParams::default();
    let next = Patch::Merge(json!({ "spec": { "osVersion": "24.04" } }));
    assert_eq!(
        causes(&refusal(configs.patch("a", &params, &next).await)),
        ["spec: Invalid value: OperatingSystemConfig is immutable and updates are not allowed"]
    );
    assert_eq!(
        causes(&refusal(profiles.patch("a", &params, &next).await)),
        [
            "spec.version: Invalid value: OperatingSystemProfile is immutable. For updates \
          .spec.version needs to be updated"
        ]
    );
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    merged(&configs, "a", label.clone()).await;
    merged(&profiles, "a", label).await;
    let next = json!({ "spec": { "osVersion": "24.04", "version": "v1.0.1" } });
    let next = merged(&profiles, "a", next).await;
    assert_eq!(next.data.pointer("/spec/osVersion"), Some(&json!("24.04")));
}

async fn create_own(objects: &Api<DynamicObject>, kind: &str, spec: &Value) {
    let new = object(json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1",
        "kind": kind,
        "metadata": { "name": "a" },
        "spec": spec,
    }));
    created(objects, &new).await;
}
