//! A worker cluster that trusts the management cluster: the file for its API server, and the user
//! whom the roles there are for.

use anyhow::Context as _;
use http::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Params, TenantAddition, prerequisites::ACCOUNT};
use crate::commands::cluster_client::metadata;
use crate::fleet::engage::audience;
use crate::tenant::{access::renewal::ServiceAccountName, id::RegistrationId};

/// What the names of the management cluster's users begin with in worker clusters.
const PREFIX: &str = "osm:";
/// Where every API server says who issues its tokens.
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// The minor version of Kubernetes in which the file's format is `v1`.
const STABLE_SINCE: u32 = 34;

/// The answer, as far as it is needed.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
}

/// Makes the management cluster's manager the subject of every binding in the worker cluster, which
/// needs no ServiceAccount then.
pub(super) fn for_user(mut documents: Vec<Value>, manager: &ServiceAccountName) -> Vec<Value> {
    let user = format!(
        "{PREFIX}system:serviceaccount:{}:{}",
        manager.namespace, manager.name
    );
    let subject = json!([{
        "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user,
    }]);
    let is_account = |it: &Value| {
        it.get("kind").is_some_and(|kind| kind == "ServiceAccount")
            && metadata(it, "name") == ACCOUNT
    };
    documents.retain(|it| !is_account(it));
    for document in &mut documents {
        if let Some(subjects) = document.get_mut("subjects") {
            subjects.clone_from(&subject);
        }
    }
    documents
}

impl TenantAddition {
    /// Returns the file for `--authentication-config` of the worker cluster's API server.
    pub(super) async fn authentication(&self) -> anyhow::Result<Value> {
        let Params {
            name, namespace, ..
        } = &self.params;
        let request = Request::get(DISCOVERY).body(Vec::new())?;
        let answer = self.management.client.request_text(request).await;
        let answer = answer.with_context(|| format!("cannot read {DISCOVERY}"))?;
        let Discovery { issuer } = serde_json::from_str(&answer)
            .with_context(|| format!("{DISCOVERY} does not say who issues tokens"))?;
        let own = self.management.server.to_string();
        // Another issuer has a certificate that is known everywhere, or one that we do not know.
        let is_own = issuer.trim_end_matches('/') == own.trim_end_matches('/');
        let authority = self.management.certificate_authority.as_ref();
        let authority = authority.filter(|_| is_own);
        let authority = authority.map(|it| String::from_utf8_lossy(it));
        let audience = audience(&RegistrationId::new(namespace, name));
        let version = self.worker.client.apiserver_version().await;
        let version = version.context("cannot read the worker cluster's version")?;
        let minor = version.minor.trim_end_matches('+').parse();
        let group_version = if minor.unwrap_or(STABLE_SINCE) < STABLE_SINCE {
            "apiserver.config.k8s.io/v1beta1"
        } else {
            "apiserver.config.k8s.io/v1"
        };
        Ok(json!({
            "apiVersion": group_version, "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {
                    "url": issuer, "audiences": [audience], "certificateAuthority": authority,
                },
                "claimMappings": { "username": { "claim": "sub", "prefix": PREFIX } },
            }],
        }))
    }
}
