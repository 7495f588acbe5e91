//! Finds the registrations: Secrets in the management cluster, each with a kubeconfig. Which ones,
//! each [inventory](Inventory) says.
//!
//! Of the Secrets that an operator labels, the watch brings the kubeconfigs, which are passed to
//! the tasks of their tenants and not kept here. Of those that a rule selects, it brings metadata
//! alone: it selects Secrets without a kubeconfig, too, and a tenant who may write Secrets can make
//! any number of them.

pub mod kkp;

use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

use futures::{StreamExt, stream, stream::BoxStream};
use jiff::Timestamp;
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Secret};
use kube::{
    Client, Resource, ResourceExt,
    api::PartialObjectMeta,
    core::DeserializeGuard,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;

use crate::api::worker_cluster::{Home, WorkerCluster, WorkerClusterSpec};
use crate::client::watch::{self, Scope};
use crate::tenant::{access, id::RegistrationId, inventory::Inventory, secret_text::SecretBytes};

/// The page size of lists of Secrets with a kubeconfig: 10 KiB each.
const PAGE: u32 = 50;
/// The page size of lists of metadata: 1 KiB each.
const PAGE_OF_METADATA: u32 = 500;

/// A registration as it was discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// The Secret.
    pub id: RegistrationId,
    /// The Secret's uid.
    pub uid: String,
    /// The time at which the Secret was created.
    pub created: Timestamp,
    /// The Secret's resourceVersion.
    pub version: String,
    /// The kubeconfig.
    pub kubeconfig: KubeconfigText,
    /// The inventory that it comes from.
    pub inventory: Inventory,
    /// What decides the settings of its WorkerCluster.
    pub settings: Settings,
}

/// The kubeconfig of a registration.
#[derive(Clone, Debug, PartialEq)]
pub enum KubeconfigText {
    /// The Secret has none of the keys.
    Missing,
    /// Its text, unparsed.
    Kept(SecretBytes),
    /// It has not been read yet, or was not kept, because the namespace has many registrations. The
    /// task of the registration that owns the namespace reads it.
    Unread,
}

impl KubeconfigText {
    /// Returns the text.
    ///
    /// # Errors
    ///
    /// Why there is none. The text is for operators.
    pub fn known(&self) -> Result<&SecretBytes, &'static str> {
        match self {
            Self::Kept(text) => Ok(text),
            Self::Missing => Err("the Secret has no kubeconfig"),
            Self::Unread => Err("the Secret has not been read yet"),
        }
    }

    /// Returns the text.
    pub fn text(&self) -> Option<&SecretBytes> {
        self.known().ok()
    }
}

/// What decides the settings of a WorkerCluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Settings {
    /// The operator writes them.
    Operator,
    /// The inventory: the WorkerCluster follows this one.
    Inventory(Arc<WorkerCluster>),
    /// The inventory, and what it says cannot be used: the WorkerCluster stays as it is.
    Unusable(String),
}

impl Registration {
    /// Returns true if another one is the same version of this, and its kubeconfig was not read.
    pub fn is_read_of(&self, unread: &Self) -> bool {
        unread.kubeconfig == KubeconfigText::Unread
            && self.inventory == unread.inventory
            && (&self.uid, &self.version) == (&unread.uid, &unread.version)
    }

    /// Returns the fingerprint of the Secret's uid and its kubeconfig.
    pub fn fingerprint(&self) -> Option<String> {
        let kubeconfig = self.kubeconfig.text()?;
        Some(access::fingerprint(&self.uid, kubeconfig.expose()))
    }
}

/// Returns the settings of the inventory, with those that the operator decides. A WorkerCluster
/// whose home is the management cluster is the operator's.
pub fn with_settings_of(own: &WorkerClusterSpec, derived: &WorkerClusterSpec) -> WorkerClusterSpec {
    if own.home == Home::Management {
        return own.clone();
    }
    WorkerClusterSpec {
        credentials: own.credentials,
        paused: own.paused,
        on_removal: own.on_removal,
        confirmed_cluster_uid: own.confirmed_cluster_uid.clone(),
        profile_annotation: own.profile_annotation,
        default_profiles: own.default_profiles,
        default_profile_names: own.default_profile_names.clone(),
        default_profile_content: own.default_profile_content,
        adoption: own.adoption,
        rollout: own.rollout,
        kubelet_feature_gates_from_annotations: own.kubelet_feature_gates_from_annotations,
        node_credentials: own.node_credentials,
        stored_config: own.stored_config,
        variables: own.variables.clone(),
        ..derived.clone()
    }
}

/// A change of the registrations.
#[derive(Debug)]
pub enum Discovered {
    /// A registration was created or changed.
    Present(Box<Registration>),
    /// A registration was removed from an inventory.
    Gone(Gone),
    /// All registrations of an inventory have been listed, in one namespace or in all. Those not
    /// listed are gone.
    Complete {
        /// The inventory.
        inventory: Inventory,
        /// The namespace; `None` for all.
        limit: Option<String>,
        /// The registrations.
        seen: BTreeSet<RegistrationId>,
    },
}

/// A registration that an inventory does not have any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The inventory.
    pub inventory: Inventory,
    /// The registration.
    pub id: RegistrationId,
    /// Why, if what it was found by still exists. The text is for operators.
    pub why: Option<String>,
}

impl Gone {
    /// Creates it for one that was deleted, or is not selected any more.
    pub fn new(inventory: &Inventory, id: RegistrationId) -> Self {
        Self {
            inventory: inventory.clone(),
            id,
            why: None,
        }
    }
}

/// Watches the Secrets of an inventory that the API server can select. Returns an endless stream of
/// changes.
pub fn discover(
    management: &Client,
    scope: &Scope,
    selected: (Inventory, watcher::Config),
) -> BoxStream<'static, Discovered> {
    match selected.0 {
        Inventory::Label | Inventory::Kkp => {
            watch(management, scope, selected, (PAGE, registration))
        }
        Inventory::Rule(_) => watch(management, scope, selected, (PAGE_OF_METADATA, UNREAD)),
    }
}

/// What a watch makes of a Secret.
type Read<K> = fn(&Inventory, K) -> Registration;

/// Makes a registration of the metadata.
const UNREAD: Read<PartialObjectMeta<Secret>> = |inventory, secret| unread(inventory, &secret);

fn watch<K>(
    management: &Client,
    scope: &Scope,
    (inventory, selected): (Inventory, watcher::Config),
    (page, read): (u32, Read<K>),
) -> BoxStream<'static, Discovered>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let watches = scope.apis::<K>(management).into_iter();
    let watches = watches.map(move |(limit, api)| {
        let (inventory, config) = (inventory.clone(), selected.clone());
        let mut listed = BTreeSet::new();
        let watch = move |page| watcher::watcher(api.clone(), config.clone().page_size(page));
        watch::interpret(
            "registrations",
            watch::relisted(watch::RELIST, page, watch, Ok),
            move |event| interpret(event, (&inventory, limit.as_ref(), read), &mut listed),
        )
        .boxed()
    });
    stream::select_all(watches).boxed()
}

fn interpret<K: ResourceExt>(
    event: Event<K>,
    (inventory, limit, read): (&Inventory, Option<&String>, Read<K>),
    listed: &mut BTreeSet<RegistrationId>,
) -> Option<Discovered> {
    let is_in = |secret: &K| inventory.has(&secret.name_any(), secret.labels().keys());
    match event {
        Event::Init => {
            listed.clear();
            None
        }
        Event::InitApply(secret) if !is_in(&secret) => None,
        Event::InitApply(secret) => {
            let registration = read(inventory, secret);
            listed.insert(registration.id.clone());
            Some(Discovered::Present(Box::new(registration)))
        }
        Event::Apply(secret) if is_in(&secret) => {
            Some(Discovered::Present(Box::new(read(inventory, secret))))
        }
        Event::InitDone => Some(Discovered::Complete {
            inventory: inventory.clone(),
            limit: limit.cloned(),
            seen: std::mem::take(listed),
        }),
        Event::Apply(secret) | Event::Delete(secret) => {
            Some(Discovered::Gone(Gone::new(inventory, id(&secret))))
        }
    }
}

/// Returns the registration in a Secret of an inventory.
pub fn registration(inventory: &Inventory, mut secret: DeserializeGuard<Secret>) -> Registration {
    let data = secret
        .0
        .as_mut()
        .ok()
        .and_then(|secret| secret.data.as_mut());
    let kubeconfig = data.and_then(|data| {
        let key = access::kubeconfig_key(data, &inventory.keys())?;
        data.remove(key).map(|bytes| bytes.0)
    });
    Registration {
        kubeconfig: kubeconfig.map_or(KubeconfigText::Missing, |bytes| {
            KubeconfigText::Kept(SecretBytes::new(bytes))
        }),
        ..unread(inventory, &secret)
    }
}

/// Returns the registration in a Secret of an inventory, by its metadata.
fn unread(inventory: &Inventory, secret: &impl ResourceExt) -> Registration {
    Registration {
        id: id(secret),
        uid: secret.uid().unwrap_or_default(),
        created: secret
            .creation_timestamp()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        version: secret.resource_version().unwrap_or_default(),
        kubeconfig: KubeconfigText::Unread,
        inventory: inventory.clone(),
        settings: Settings::Operator,
    }
}

fn id(secret: &impl ResourceExt) -> RegistrationId {
    RegistrationId::new(&secret.namespace().unwrap_or_default(), &secret.name_any())
}

#[cfg(test)]
mod tests {
    use fake_cluster::Cluster;
    use kube::api::PartialObjectMetaExt;
    use serde_json::json;

    use super::*;
    use crate::api::names::WORKER_CLUSTER_LABEL;

    fn a_secret(name: &str, data: &serde_json::Value) -> DeserializeGuard<Secret> {
        serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "namespace": "berlin",
                "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "data": data,
        }))
        .unwrap()
    }

    fn metadata(name: &str) -> PartialObjectMeta<Secret> {
        let metadata = a_secret(name, &json!({})).meta().clone();
        metadata.into_response_partial()
    }

    fn kubeconfig(data: &serde_json::Value) -> Option<Vec<u8>> {
        let found = registration(&Inventory::Label, a_secret("a", data)).kubeconfig;
        found.text().map(|bytes| bytes.expose().to_vec())
    }

    #[test]
    fn our_key_comes_before_cluster_apis() {
        assert_eq!(kubeconfig(&json!({"value": "dg=="})), Some(b"v".to_vec()));
        let both = json!({"value": "dg==", "kubeconfig": "aw=="});
        assert_eq!(kubeconfig(&both), Some(b"k".to_vec()));
        assert_eq!(kubeconfig(&json!({"other": "dg=="})), None);
    }

    #[test]
    fn a_blank_key_gives_way_to_one_that_is_not() {
        for blank in ["", "IAo="] {
            let both = json!({"kubeconfig": blank, "value": "dg=="});
            assert_eq!(kubeconfig(&both), Some(b"v".to_vec()), "{blank:?}");
        }
        let blank = json!({"kubeconfig": "", "value": "IAo="});
        assert_eq!(
            kubeconfig(&blank),
            Some(Vec::new()),
            "it is reported as empty"
        );
        assert_eq!(kubeconfig(&json!({"value": ""})), Some(Vec::new()));
    }

    #[test]
    fn a_full_list_says_who_is_left() {
        let mut listed = BTreeSet::new();
        let mut next =
            |event| interpret(event, (&Inventory::Label, None, registration), &mut listed);
        assert!(next(Event::Init).is_none());
        // A list that was interrupted starts over.
        next(Event::InitApply(a_secret("gone", &json!({}))));
        assert!(next(Event::Init).is_none());
        let found = next(Event::InitApply(a_secret("a", &json!({}))));
        let Some(Discovered::Present(registration)) = found else {
            panic!("{found:?}");
        };
        assert_eq!(registration.id, RegistrationId::new("berlin", "a"));
        assert_eq!(registration.created.to_string(), "2026-01-01T00:00:00Z");
        let all = next(Event::InitDone);
        let expected = BTreeSet::from([RegistrationId::new("berlin", "a")]);
        assert!(matches!(all, Some(Discovered::Complete { seen, .. }) if seen == expected));
    }

    #[test]
    fn changes_and_deletions_are_reported_one_by_one() {
        let mut listed = BTreeSet::new();
        let mut next =
            |event| interpret(event, (&Inventory::Label, None, registration), &mut listed);
        let changed = next(Event::Apply(a_secret("a", &json!({}))));
        assert!(matches!(changed, Some(Discovered::Present(_))));
        let gone = next(Event::Delete(a_secret("a", &json!({}))));
        assert!(matches!(gone, Some(Discovered::Gone(gone)) if gone.id.name.as_ref() == "a"));
        assert!(listed.is_empty());
    }

    #[test]
    fn a_rule_takes_what_it_names_and_leaves_what_an_operator_labels() {
        let inventory = Inventory::built_in("cluster-api").unwrap();
        let mut listed = BTreeSet::new();
        let mut next = |event| interpret(event, (&inventory, None, UNREAD), &mut listed);
        let found = next(Event::InitApply(metadata("prod-kubeconfig")));
        let Some(Discovered::Present(unread)) = found else {
            panic!("{found:?}");
        };
        assert_eq!(unread.kubeconfig, KubeconfigText::Unread);
        let data = json!({"value": "dg==", "kubeconfig": "aw=="});
        let read = registration(&inventory, a_secret("prod-kubeconfig", &data));
        assert!(read.is_read_of(&unread));
        let kubeconfig = read.kubeconfig.text().unwrap();
        assert_eq!(kubeconfig.expose(), b"v", "the rule's key counts alone");
        assert!(next(Event::InitApply(metadata("prod-ca"))).is_none());
        let all = next(Event::InitDone);
        let expected = BTreeSet::from([RegistrationId::new("berlin", "prod-kubeconfig")]);
        assert!(matches!(all, Some(Discovered::Complete { seen, .. }) if seen == expected));
        let mut labelled = metadata("prod-kubeconfig");
        let label = (WORKER_CLUSTER_LABEL.to_owned(), "true".to_owned());
        labelled.metadata.labels = Some([label].into());
        let left = next(Event::Apply(labelled));
        assert!(matches!(left, Some(Discovered::Gone(gone)) if gone.inventory == inventory));
    }

    #[tokio::test(start_paused = true)]
    async fn of_what_a_rule_selects_metadata_is_seen_and_of_what_is_labelled_the_kubeconfig() {
        let management = Cluster::default();
        for name in ["prod-ca", "prod-kubeconfig"] {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
                "metadata": {"name": name, "namespace": "berlin"}, "data": {"value": "dg=="},
            });
            management.put_raw(secret).unwrap();
        }
        let rule = Inventory::built_in("cluster-api").unwrap();
        for (inventory, names) in [(rule, 1), (Inventory::Label, 2)] {
            let is_rule = inventory != Inventory::Label;
            let of = (inventory, watcher::Config::default());
            let found = discover(&management.client(), &Scope::All, of).take(names);
            let found: Vec<_> = found.collect().await;
            for found in found {
                let Discovered::Present(registration) = found else {
                    panic!("{found:?}");
                };
                let is_unread = registration.kubeconfig == KubeconfigText::Unread;
                assert_eq!(is_unread, is_rule, "{registration:?}");
            }
        }
    }

    #[test]
    fn the_operator_keeps_what_the_inventory_does_not_say() {
        let own = WorkerClusterSpec {
            home: Home::Worker,
            paused: true,
            pause_image: Some("old".to_owned()),
            ..WorkerClusterSpec::default()
        };
        let derived = WorkerClusterSpec {
            home: Home::Worker,
            pause_image: Some("new".to_owned()),
            ..WorkerClusterSpec::default()
        };
        let followed = with_settings_of(&own, &derived);
        assert!(followed.paused);
        assert_eq!(followed.pause_image.as_deref(), Some("new"));
        let elsewhere = WorkerClusterSpec {
            home: Home::Management,
            ..own
        };
        assert_eq!(with_settings_of(&elsewhere, &derived), elsewhere);
    }
}
