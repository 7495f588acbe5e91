//! How the tokens are evaluated that nodes join with.

use std::{collections::BTreeMap, time::Duration};

use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use serde_json::json;

use super::{object, secrets};

/// What is wrong with a token, if anything, and whether it is good. The last one is good: when the
/// server knows it, it knows the others.
const CASES: [(&str, &str, bool); 17] = [
    ("expiration", "2020-01-01T00:00:00Z", false),
    ("expiration", "soon", false),
    ("expiration", "2999-01-01", false),
    ("expiration", "2999-01-01T00:00:00", false),
    ("expiration", "2999-01-01 00:00:00Z", false),
    ("expiration", "2999-01-01T00:00:00+01", false),
    ("expiration", "2999-01-01T00:00:60Z", false),
    ("expiration", "2999-01-01T00:00:00.5+01:00", true),
    ("expiration", "", true),
    ("token-id", "abcdef", false),
    ("token-secret", "0123456789abcdef\n", false),
    ("usage-bootstrap-authentication", "True", false),
    ("auth-extra-groups", "system:masters", false),
    (
        "auth-extra-groups",
        "system:bootstrappers:a, system:bootstrappers:b",
        false,
    ),
    ("auth-extra-groups", "system:bootstrappers:a,", false),
    (
        "auth-extra-groups",
        "system:bootstrappers:a,system:bootstrappers:b",
        true,
    ),
    ("expiration", "2999-01-01T00:00:00Z", true),
];

/// A token is good until it expires, if it has the form of one. One whose end cannot be read has
/// expired.
pub async fn a_bootstrap_token_is_good_if_it_is_one_and_until_it_expires(client: &Client, _: &str) {
    let id = |index: usize| format!("abcd{index:02}");
    for (index, (key, text, _)) in CASES.into_iter().enumerate() {
        let id = id(index);
        let mut data = BTreeMap::from([
            ("token-id", id.as_str()),
            ("token-secret", SECRET),
            ("expiration", "2999-01-01T00:00:00Z"),
            ("usage-bootstrap-authentication", "true"),
        ]);
        data.insert(key, text);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": { "name": format!("bootstrap-token-{id}") }, "stringData": data,
        });
        let kube_system = secrets(client, "kube-system");
        let made = kube_system
            .create(&PostParams::default(), &object(secret))
            .await;
        made.expect("created");
    }
    let mut attempts_left = 100;
    while !is_good(client, &id(CASES.len() - 1)).await {
        attempts_left -= 1;
        assert!(attempts_left > 0, "a token that has not expired is refused");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for (index, (key, text, good)) in CASES.into_iter().enumerate() {
        assert_eq!(is_good(client, &id(index)).await, good, "{key}: {text:?}");
    }
}

const SECRET: &str = "0123456789abcdef";

async fn is_good(client: &Client, id: &str) -> bool {
    let kind = GroupVersionKind::gvk("authentication.k8s.io", "v1", "TokenReview");
    let kind = ApiResource::from_gvk_with_plural(&kind, "tokenreviews");
    let reviews: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let review = object(json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {},
        "spec": { "token": format!("{id}.{SECRET}") },
    }));
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.expect("reviewed");
    answer.data.pointer("/status/authenticated") == Some(&json!(true))
}
