//! Requests that ask about rights and identities, and tokens on request. They change no object.

use serde_json::{Value, json};

use crate::{
    auth::{TokenClaims, User},
    body,
    kinds::Kind,
    meta::{set, text, texts},
    rbac::{self, Attributes},
    request::{Call, Target},
    state::State,
    status::Refusal,
};

impl State {
    /// Answers a review of one of the kinds that can only be created.
    pub(crate) fn review(&self, call: &Call, kind: &Kind, user: &User) -> Result<Value, Refusal> {
        let mut review = body::object(call, kind)?;
        let status = match kind.resource.as_str() {
            "selfsubjectaccessreviews" => self.access(&review, user),
            "selfsubjectrulesreviews" => self.rules(&review, user),
            "selfsubjectreviews" => {
                json!({ "userInfo": { "username": user.name, "groups": user.groups } })
            }
            "tokenreviews" => {
                let token = text(&review, "/spec/token");
                match self
                    .credentials
                    .by_token(&self.store, token, self.timestamp())
                {
                    Some(user) => json!({
                        "authenticated": true,
                        "user": { "username": user.name, "groups": user.groups },
                    }),
                    None => json!({ "authenticated": false, "user": {} }),
                }
            }
            _ => return Err(Refusal::unserved()),
        };
        set(&mut review, &["status"], status);
        Ok(review)
    }

    fn access(&self, review: &Value, user: &User) -> Value {
        let field =
            |name: &str| text(review, &format!("/spec/resourceAttributes/{name}")).to_owned();
        let on_path = review.pointer("/spec/nonResourceAttributes").is_some();
        let wanted = if on_path {
            Attributes {
                verb: text(review, "/spec/nonResourceAttributes/verb").to_owned(),
                path: text(review, "/spec/nonResourceAttributes/path").to_owned(),
                target: Target::default(),
            }
        } else {
            Attributes {
                verb: field("verb"),
                path: String::new(),
                target: Target {
                    group: field("group"),
                    version: field("version"),
                    resource: field("resource"),
                    namespace: field("namespace"),
                    name: field("name"),
                    subresource: field("subresource"),
                },
            }
        };
        json!({ "allowed": rbac::may(&self.store, user, &wanted) })
    }

    fn rules(&self, review: &Value, user: &User) -> Value {
        let namespace = text(review, "/spec/namespace");
        let rules = if user.is_master() {
            vec![
                json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }),
                json!({ "verbs": ["*"], "nonResourceURLs": ["*"] }),
            ]
        } else {
            rbac::rules_of(&self.store, user, namespace)
                .cloned()
                .collect()
        };
        let (paths, resources): (Vec<Value>, Vec<Value>) = rules
            .into_iter()
            .partition(|rule| rule.get("nonResourceURLs").is_some());
        json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": false })
    }

    /// A token for a service account, on its `token` subresource.
    pub(crate) fn request_token(&self, call: &Call, kind: &Kind) -> Result<Value, Refusal> {
        let mut request = body::value(call)?;
        let Target {
            namespace, name, ..
        } = &call.target;
        let account = self
            .store
            .find(&kind.storage, namespace, name)
            .ok_or_else(|| Refusal::not_found(kind, name))?;
        let uid = text(account, "/metadata/uid");
        let seconds = request
            .pointer("/spec/expirationSeconds")
            .and_then(Value::as_i64);
        let lifetime = jiff::SignedDuration::from_secs(seconds.unwrap_or(3600));
        let begins = self.timestamp();
        let ends = begins.checked_add(lifetime).unwrap_or(jiff::Timestamp::MAX);
        let audiences = texts(&request, "/spec/audiences");
        let audiences = audiences.iter().map(String::as_str).collect();
        let token = self.credentials.sign(&TokenClaims {
            namespace,
            account: name,
            uid,
            secret: "",
            validity: Some((begins, ends)),
            audiences,
        });
        set(
            &mut request,
            &["status"],
            json!({
                "token": token,
                "expirationTimestamp": ends.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            }),
        );
        Ok(request)
    }
}
