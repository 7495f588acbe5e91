//! How the tokens are evaluated that nodes join with.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use serde_json::json;

use super::{object, secrets};

/// A token is good until it expires. One whose end cannot be read has expired.
pub async fn a_bootstrap_token_is_good_until_it_expires(client: &Client, _: &str) {
    // The last one is good: when the server knows it, it knows the others.
    let ends = [
        ("2020-01-01T00:00:00Z", false),
        ("soon", false),
        ("2999-01-01T00:00:00Z", true),
    ];
    let ids = ["dead01", "dead02", "alive1"];
    for (id, (end, _)) in ids.iter().zip(ends) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": { "name": format!("bootstrap-token-{id}") },
            "stringData": {
                "token-id": id, "token-secret": SECRET, "expiration": end,
                "usage-bootstrap-authentication": "true",
            },
        });
        let kube_system = secrets(client, "kube-system");
        let made = kube_system
            .create(&PostParams::default(), &object(secret))
            .await;
        made.expect("created");
    }
    let mut attempts_left = 100;
    while !is_good(client, ids[2]).await {
        attempts_left -= 1;
        assert!(attempts_left > 0, "a token that has not expired is refused");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for (id, (end, good)) in ids.iter().zip(ends) {
        assert_eq!(is_good(client, id).await, good, "a token until {end}");
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
