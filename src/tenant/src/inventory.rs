//! Where registrations come from.

use std::sync::Arc;

use osm_api::{names::WORKER_CLUSTER_LABEL, worker_cluster::Home};
use serde::Deserialize;

/// An inventory: where the Secrets that register worker clusters come from. A Secret in several
/// belongs to the first of them, in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Inventory {
    /// An operator labels each Secret.
    Label,
    /// The Secrets of a KKP seed, one in the namespace of each user cluster.
    Kkp,
    /// The Secrets that a rule matches.
    Rule(Arc<SecretRule>),
}

/// An operator's rule for Secrets that another program makes, each with a kubeconfig. The tenant is
/// always the Secret's namespace: no rule, and no name of a Secret, can lead to another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SecretRule {
    /// The inventory's name.
    pub name: String,
    /// The type that the Secrets have.
    #[serde(rename = "type")]
    pub secret_type: Option<String>,
    /// The label selector that the Secrets match.
    pub label_selector: Option<String>,
    /// What follows the worker cluster's name in the Secret's name.
    pub name_suffix: Option<String>,
    /// The Secrets' key with the kubeconfig.
    pub key: String,
    /// Where the tenants' profiles and configs are, until their WorkerClusters say otherwise.
    #[serde(default)]
    pub home: Home,
}

/// The longest name of an inventory.
const NAME_MAX: usize = 63;

/// The keys under which a Secret may have its kubeconfig without a rule: ours, then Cluster API's.
const KEYS: [&str; 2] = ["kubeconfig", "value"];

/// The names of the inventories that need no rule of an operator.
pub const BUILT_IN: [&str; 4] = ["label", "kkp", CLUSTER_API, KAMAJI];
const CLUSTER_API: &str = "cluster-api";
const KAMAJI: &str = "kamaji";

impl Inventory {
    /// Returns a built-in inventory by its name.
    pub fn built_in(name: &str) -> Option<Self> {
        Some(match name {
            "label" => Self::Label,
            "kkp" => Self::Kkp,
            // Cluster API labels these Secrets, too, but not those that users bring.
            CLUSTER_API => Self::Rule(Arc::new(SecretRule {
                name: CLUSTER_API.to_owned(),
                secret_type: Some("cluster.x-k8s.io/secret".to_owned()),
                label_selector: None,
                name_suffix: Some("-kubeconfig".to_owned()),
                key: "value".to_owned(),
                home: Home::default(),
            })),
            KAMAJI => Self::Rule(Arc::new(SecretRule {
                name: KAMAJI.to_owned(),
                secret_type: None,
                label_selector: Some("kamaji.clastix.io/component=admin-kubeconfig".to_owned()),
                name_suffix: Some("-admin-kubeconfig".to_owned()),
                key: "admin.conf".to_owned(),
                home: Home::default(),
            })),
            _ => return None,
        })
    }

    /// Returns the keys under which a Secret may have its kubeconfig, in order of preference.
    pub fn keys(&self) -> Vec<&str> {
        match self {
            Self::Label | Self::Kkp => KEYS.to_vec(),
            Self::Rule(rule) => vec![&rule.key],
        }
    }

    /// Returns the name and the home of the WorkerCluster for a Secret of the inventory.
    pub fn worker_cluster<'a>(&self, secret: &'a str) -> (&'a str, Home) {
        match self {
            Self::Label | Self::Kkp => (secret, Home::default()),
            Self::Rule(rule) => (rule.cluster(secret).unwrap_or(secret), rule.home),
        }
    }

    /// Returns true if a Secret that the API server selected belongs to the inventory, by its name
    /// and the keys of its labels. One with the label of a registration is the operator's alone.
    pub fn has<'a>(&self, secret: &str, mut labels: impl Iterator<Item = &'a String>) -> bool {
        match self {
            Self::Label => true,
            Self::Kkp => labels.all(|key| key != WORKER_CLUSTER_LABEL),
            Self::Rule(rule) => {
                rule.cluster(secret).is_some() && labels.all(|key| key != WORKER_CLUSTER_LABEL)
            }
        }
    }
}

impl SecretRule {
    /// Returns the name of the worker cluster whose kubeconfig a Secret has. `None` if the name of
    /// the Secret does not match.
    pub fn cluster<'a>(&self, secret: &'a str) -> Option<&'a str> {
        let suffix = self.name_suffix.as_deref().unwrap_or_default();
        secret.strip_suffix(suffix).filter(|name| !name.is_empty())
    }

    /// Returns the field selector of the Secrets.
    pub fn field_selector(&self) -> Option<String> {
        let of_type = self.secret_type.as_ref();
        of_type.map(|secret_type| format!("type={secret_type}"))
    }

    /// Checks a rule.
    ///
    /// # Errors
    ///
    /// The name of the field that is wrong, and why. The text is for operators.
    pub fn check(&self) -> Result<(), String> {
        let is_of_a_name = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
        let name = &self.name;
        if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_of_a_name) {
            return Err(format!(
                "name: it has 1 to {NAME_MAX} lowercase letters, digits and hyphens"
            ));
        }
        if BUILT_IN.contains(&name.as_str()) {
            return Err(format!("name: {name} is a built-in inventory"));
        }
        if self.key.is_empty() {
            return Err("key: it names the Secrets' key with the kubeconfig".to_owned());
        }
        let selectors = [&self.secret_type, &self.label_selector, &self.name_suffix];
        let is_blank =
            |text: &&Option<String>| text.as_ref().is_some_and(|it| it.trim().is_empty());
        if selectors.iter().any(is_blank) {
            return Err("type, labelSelector, nameSuffix: leave out what is empty".to_owned());
        }
        if self.secret_type.is_none() && self.label_selector.is_none() {
            return Err(
                "type, labelSelector: set one of them, so that not every Secret is read".to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_rule() -> SecretRule {
        SecretRule {
            name: "ours".to_owned(),
            secret_type: Some("Opaque".to_owned()),
            label_selector: None,
            name_suffix: Some("-admin".to_owned()),
            key: "config".to_owned(),
            home: Home::Worker,
        }
    }

    #[test]
    fn the_built_in_ones_know_their_secrets() {
        let none = || std::iter::empty();
        for (inventory, secret, cluster, key) in [
            ("cluster-api", "prod-kubeconfig", "prod", "value"),
            ("kamaji", "prod-admin-kubeconfig", "prod", "admin.conf"),
        ] {
            let inventory = Inventory::built_in(inventory).unwrap();
            assert!(inventory.has(secret, none()));
            assert_eq!(inventory.worker_cluster(secret).0, cluster);
            assert_eq!(inventory.keys(), [key]);
            for other in ["prod-ca", "prod-kubeconfig-old", "kubeconfig"] {
                assert!(!inventory.has(other, none()), "{other}");
            }
            let labelled = WORKER_CLUSTER_LABEL.to_owned();
            assert!(!inventory.has(secret, [&labelled].into_iter()));
        }
        assert_eq!(Inventory::built_in("rancher"), None);
    }

    #[test]
    fn a_rule_that_cannot_be_meant_is_refused_with_its_field() {
        assert_eq!(a_rule().check(), Ok(()));
        let wrong = |spoil: fn(&mut SecretRule), field: &str| {
            let mut rule = a_rule();
            spoil(&mut rule);
            let why = rule.check().unwrap_err();
            assert!(why.contains(field), "{why}");
        };
        wrong(|rule| rule.name = "Ours".to_owned(), "name: ");
        wrong(|rule| rule.name = "kkp".to_owned(), "name: kkp is");
        wrong(|rule| rule.key.clear(), "key: ");
        wrong(|rule| rule.name_suffix = Some(String::new()), "leave out");
        wrong(|rule| rule.secret_type = None, "set one of them");
        wrong(
            |rule| rule.label_selector = Some(" ".to_owned()),
            "leave out",
        );
    }
}
