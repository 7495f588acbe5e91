//! Keeps certificates of our own in a Secret, and makes our webhook configurations trust them.
//!
//! Every replica does this, again and again, by compare-and-swap: the second one finds
//! everything done. The Secret is made by the manifests, so nothing here may create one.

use std::{fmt, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::Secret,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value as Json, json};
use tokio::sync::watch;
use tracing::Instrument as _;

use super::{
    authority::{CertificateBundle, Trust, Wanted, next},
    identity::{Identity, IdentityError},
};
use crate::telemetry::{chain::chain, metrics::Metrics};

/// How often everything is looked at while all is well.
const LOOK: Duration = Duration::from_mins(1);
/// How soon after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// The objects that hold certificates and trust.
pub struct Params {
    /// A client that may read and update the Secret, and read and patch both configurations.
    pub client: Client,
    /// The namespace of the Secret.
    pub namespace: String,
    /// The Secret's name.
    pub secret: String,
    /// The name of the mutating and of the validating configuration; either may be missing.
    pub configurations: String,
    /// The names and addresses that API servers call the server by.
    pub hosts: Vec<String>,
    /// Tells the time of day.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Publishes the current certificate.
    pub shown: watch::Sender<Option<Identity>>,
    /// Reports when the certificate ends.
    pub metrics: Metrics,
}

impl fmt::Debug for Params {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Params")
    }
}

/// Why the certificates are not as they should be. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum RotatorError {
    /// A call failed.
    #[error("cannot {what}")]
    Call {
        /// The operation that failed.
        what: &'static str,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate for the hosts that were given")]
    Make(#[source] rcgen::Error),
    /// The issued certificate cannot be used.
    #[error("cannot use the certificate of the Secret")]
    Unusable(#[from] IdentityError),
}

/// One look is one trace.
fn span() -> tracing::Span {
    tracing::info_span!(parent: None, "keep certificates")
}

fn call(what: &'static str) -> impl FnOnce(kube::Error) -> RotatorError {
    move |source| RotatorError::Call {
        what,
        source: Box::new(source),
    }
}

/// Keeps the certificates.
#[derive(Debug)]
pub struct CertificateRotator {
    params: Params,
    seen: Option<CertificateBundle>,
}

impl CertificateRotator {
    /// Nothing happens yet.
    pub const fn new(params: Params) -> Self {
        Self { params, seen: None }
    }

    /// Checks until cancelled.
    pub async fn run(mut self) {
        loop {
            let delay = match self.reconcile().instrument(span()).await {
                Ok(()) => LOOK,
                Err(error) => {
                    let error = chain(&error).to_string();
                    tracing::warn!(error, "the certificates are not in order; tried again");
                    RETRY
                }
            };
            tokio::time::sleep(delay).await;
        }
    }

    /// Looks once, and puts right what is wrong: one step of a rotation at a time.
    ///
    /// # Errors
    ///
    /// A call to the API server fails, or a certificate cannot be created or used.
    pub async fn reconcile(&mut self) -> Result<(), RotatorError> {
        let params = &self.params;
        let secrets: Api<Secret> = Api::namespaced(params.client.clone(), &params.namespace);
        let secret = secrets.get(&params.secret).await;
        let mut secret = secret.map_err(call("read the Secret of the certificates"))?;
        let found = secret.data.as_ref().and_then(CertificateBundle::from_data);
        let configurations = self.configurations().await?;
        let trusts = |kept: &CertificateBundle| configurations.iter().all(|it| it.trusts(kept));
        let wanted = Wanted {
            hosts: &params.hosts,
            now: (params.now)(),
            trust: match &found {
                Some(kept) if trusts(kept) => Trust::InPlace,
                _ => Trust::Pending,
            },
        };
        let made = next(found.as_ref(), &wanted).map_err(RotatorError::Make)?;
        if let Some(made) = &made {
            secret.data = Some(made.to_data());
            secrets
                .replace(&params.secret, &PostParams::default(), &secret)
                .await
                .map_err(call("replace the Secret of the certificates"))?;
            tracing::info!("certificates were made and kept");
        }
        let Some(kept) = made.or(found) else {
            return Ok(());
        };
        for configuration in configurations.iter().filter(|it| !it.trusts(&kept)) {
            self.make_trust(configuration, &kept).await?;
        }
        self.show(kept)
    }

    fn show(&mut self, kept: CertificateBundle) -> Result<(), RotatorError> {
        if self.seen.as_ref() == Some(&kept) {
            return Ok(());
        }
        let identity = Identity::from_pem(kept.certificate.as_bytes(), kept.key.as_bytes())?;
        self.params.metrics.set_certificate_end(identity.ends());
        self.params.shown.send_replace(Some(identity));
        self.seen = Some(kept);
        Ok(())
    }

    async fn configurations(&self) -> Result<Vec<Configuration>, RotatorError> {
        let kinds = [
            ApiResource::erase::<MutatingWebhookConfiguration>(&()),
            ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
        ];
        let mut found = Vec::new();
        for kind in kinds {
            let api: Api<DynamicObject> = Api::all_with(self.params.client.clone(), &kind);
            let object = api.get_opt(&self.params.configurations).await;
            let object = object.map_err(call("read a webhook configuration"))?;
            found.extend(object.map(|object| Configuration { api, object }));
        }
        Ok(found)
    }

    async fn make_trust(
        &self,
        configuration: &Configuration,
        kept: &CertificateBundle,
    ) -> Result<(), RotatorError> {
        let bundle = STANDARD.encode(&kept.authorities);
        // Each place is tested: somebody may have put another webhook there meanwhile.
        let operations = configuration.webhooks().iter().enumerate();
        let operations = operations.flat_map(|(index, webhook)| {
            let name = webhook.get("name").unwrap_or(&Json::Null);
            let place = format!("/webhooks/{index}");
            [
                json!({"op": "test", "path": format!("{place}/name"), "value": name}),
                json!({
                    "op": "add",
                    "path": format!("{place}/clientConfig/caBundle"),
                    "value": bundle,
                }),
            ]
        });
        let patch = serde_json::from_value(Json::Array(operations.collect()));
        let patch = Patch::<DynamicObject>::Json(patch.expect("operations are a patch"));
        let name = configuration.object.name_any();
        configuration
            .api
            .patch(&name, &PatchParams::default(), &patch)
            .await
            .map_err(call("patch the caBundle of a webhook configuration"))?;
        tracing::info!("a webhook configuration trusts the certificates");
        Ok(())
    }
}

/// A webhook configuration of either kind.
struct Configuration {
    api: Api<DynamicObject>,
    object: DynamicObject,
}

impl Configuration {
    fn webhooks(&self) -> &[Json] {
        let webhooks = self.object.data.get("webhooks").and_then(Json::as_array);
        webhooks.map_or(&[], Vec::as_slice)
    }

    fn trusts(&self, kept: &CertificateBundle) -> bool {
        let bundle = STANDARD.encode(&kept.authorities);
        self.webhooks().iter().all(|webhook| {
            let trusted = webhook.pointer("/clientConfig/caBundle");
            trusted.and_then(Json::as_str) == Some(&bundle)
        })
    }
}
