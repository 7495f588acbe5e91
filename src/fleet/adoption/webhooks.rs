//! Finds the webhook configurations of the previous manager. When its server is gone, they refuse
//! every write of the objects that they cover.

use std::fmt::Debug;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams, core::DeserializeGuard};
use serde::de::DeserializeOwned;

use crate::client::pages::Pages;

/// The paths at which its webhooks are served, behind a Service or a URL.
const PATHS: [&str; 3] = [
    "/mutate-v1alpha1-machinedeployment",
    "/operatingsystemprofile",
    "/operatingsystemconfig",
];
/// The maximum number of configurations that a condition's message names.
const NAMED_MAX: usize = 6;
/// The page size of configurations. Each has a few KiB.
const PAGE: u32 = 100;

/// A configuration that was left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The resource, as kubectl accepts it.
    pub resource: &'static str,
    /// The configuration's name.
    pub name: String,
}

/// Returns the configurations that would refuse writes, at most as many of each kind as are named.
pub async fn leftovers(worker: &Client) -> Result<Vec<Leftover>, kube::Error> {
    let mutating = named(
        Api::all(worker.clone()),
        "mutatingwebhookconfiguration",
        |found: &MutatingWebhookConfiguration| {
            let mut webhooks = found.webhooks.iter().flatten();
            webhooks.any(|it| refuses(it.failure_policy.as_deref(), &it.client_config))
        },
    );
    let mut found = mutating.await?;
    let validating = named(
        Api::all(worker.clone()),
        "validatingwebhookconfiguration",
        |found: &ValidatingWebhookConfiguration| {
            let mut webhooks = found.webhooks.iter().flatten();
            webhooks.any(|it| refuses(it.failure_policy.as_deref(), &it.client_config))
        },
    );
    found.extend(validating.await?);
    found.truncate(NAMED_MAX);
    Ok(found)
}

/// Returns the first configurations of one kind that would refuse writes.
async fn named<K>(
    api: Api<DeserializeGuard<K>>,
    resource: &'static str,
    refuses: impl Fn(&K) -> bool,
) -> Result<Vec<Leftover>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut pages = Pages::of(ListParams::default(), PAGE);
    let mut named = Vec::new();
    while let Some(page) = pages.next(&api).await? {
        let refusing = page.objects.iter().filter(|found| refuses(found));
        let leftovers = refusing.map(|found| Leftover {
            resource,
            name: found.name_any(),
        });
        named.extend(leftovers.take(NAMED_MAX - named.len()));
        if named.len() == NAMED_MAX {
            break;
        }
    }
    Ok(named)
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
