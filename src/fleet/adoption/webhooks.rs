//! Finds the webhook configurations of the previous manager. When its server is gone, they refuse
//! every write of the objects that they cover.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::{Api, Client, ResourceExt, api::ListParams, core::DeserializeGuard};

use crate::client::pages::{self, Listed};

/// The paths at which its webhooks are served, behind a Service or a URL.
const PATHS: [&str; 3] = [
    "/mutate-v1alpha1-machinedeployment",
    "/operatingsystemprofile",
    "/operatingsystemconfig",
];
/// The maximum number of configurations that a condition's message names.
const NAMED_MAX: usize = 6;

/// A configuration that was left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The resource, as kubectl accepts it.
    pub resource: &'static str,
    /// The configuration's name.
    pub name: String,
}

/// Returns the configurations that would refuse writes.
pub async fn leftovers(worker: &Client) -> Result<Vec<Leftover>, kube::Error> {
    let mutating: Api<DeserializeGuard<MutatingWebhookConfiguration>> = Api::all(worker.clone());
    let validating: Api<DeserializeGuard<ValidatingWebhookConfiguration>> =
        Api::all(worker.clone());
    let mutating = named(
        "mutatingwebhookconfiguration",
        pages::all(&mutating, ListParams::default()).await?,
        |found| {
            let mut webhooks = found.webhooks.iter().flatten();
            webhooks.any(|it| refuses(it.failure_policy.as_deref(), &it.client_config))
        },
    );
    let validating = named(
        "validatingwebhookconfiguration",
        pages::all(&validating, ListParams::default()).await?,
        |found| {
            let mut webhooks = found.webhooks.iter().flatten();
            webhooks.any(|it| refuses(it.failure_policy.as_deref(), &it.client_config))
        },
    );
    Ok(mutating.chain(validating).take(NAMED_MAX).collect())
}

/// Returns the configurations of one kind that would refuse writes.
fn named<K: ResourceExt + Clone>(
    resource: &'static str,
    all: Listed<K>,
    refuses: impl Fn(&K) -> bool,
) -> impl Iterator<Item = Leftover> {
    let refusing = all.objects.into_iter().filter(move |found| refuses(found));
    refusing.map(move |found| Leftover {
        resource,
        name: found.name_any(),
    })
}

fn refuses(failure_policy: Option<&str>, to: &WebhookClientConfig) -> bool {
    let service = to.service.as_ref().and_then(|it| it.path.as_deref());
    let path = service.or_else(|| to.url.as_deref().and_then(path));
    let is_its = path.is_some_and(|path| PATHS.contains(&path));
    // An absent policy is Fail.
    is_its && !failure_policy.is_some_and(|policy| policy.eq_ignore_ascii_case("ignore"))
}

/// Returns the path of `https://host:port/path`.
fn path(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://")?;
    rest.find('/').and_then(|at| rest.get(at..))
}
