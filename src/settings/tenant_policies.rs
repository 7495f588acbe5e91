//! The policies of single tenants, from a file: a list of rules, each with the tenants that it is
//! for and what it sets. For what it does not set, the flags apply.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::{NonZeroU32, NonZeroUsize},
    path::Path,
    sync::Arc,
};

use serde::Deserialize;

use super::{InvalidSetting, yaml_file::YamlFile};
use crate::tenant::{
    address::AddressRange,
    class::{CLASSES_MAX, TenantClass},
    policies::{Match, PolicyRule, TenantPolicies},
    policy::{RequestBudget, TenantPolicy},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Rule {
    #[serde(rename = "match")]
    applies_to: Tenants,
    class: Option<String>,
    worker_requests: Option<Requests>,
    management_requests: Option<Requests>,
    reconciles: Option<NonZeroUsize>,
    machine_deployments: Option<usize>,
    profiles: Option<usize>,
    profile_bytes: Option<usize>,
    profile_namespaces: Option<BTreeSet<String>>,
    allowed_servers: Option<Vec<String>>,
    denied_servers: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Tenants {
    #[serde(default)]
    namespaces: BTreeSet<String>,
    #[serde(default)]
    namespace_labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Requests {
    per_second: NonZeroU32,
    burst: NonZeroU32,
}

/// The policies of the file over the one of the flags.
///
/// # Errors
///
/// The file cannot be read, or one of its rules is invalid.
pub fn tenant_policies(
    path: Option<&Path>,
    default: TenantPolicy,
) -> Result<TenantPolicies, InvalidSetting> {
    let default = Arc::new(default);
    let Some(path) = path else {
        return Ok(TenantPolicies {
            rules: Vec::new(),
            default,
        });
    };
    let file = YamlFile {
        flag: "tenant-policies",
        path,
    };
    let rules: Vec<Rule> = file.read()?;
    let mut classes = BTreeSet::new();
    let rules = rules.into_iter().enumerate().map(|(index, rule)| {
        let in_rule = |why: String| file.refused(format!("rule {}: {why}", index + 1));
        let rule = rule.over(&default).map_err(in_rule)?;
        add_class(&mut classes, &rule.policy.class).map_err(in_rule)?;
        Ok(rule)
    });
    Ok(TenantPolicies {
        rules: rules.collect::<Result<_, InvalidSetting>>()?,
        default: Arc::clone(&default),
    })
}

/// Adds the class of a rule to those of the rules before it. Each class has metrics of its own.
fn add_class(classes: &mut BTreeSet<TenantClass>, class: &TenantClass) -> Result<(), String> {
    let is_new = *class != TenantClass::default() && classes.insert(class.clone());
    if is_new && classes.len() > CLASSES_MAX {
        return Err(format!(
            "class: {class} is one too many: rules may name at most {CLASSES_MAX} classes"
        ));
    }
    Ok(())
}

impl Rule {
    fn over(self, default: &TenantPolicy) -> Result<PolicyRule, String> {
        let mut policy = default.clone();
        let class = self
            .class
            .map(|it| it.parse().map_err(|error| format!("class: {error}")));
        set(&mut policy.class, class.transpose()?);
        set(&mut policy.reconciles_max, self.reconciles.map(Into::into));
        set(
            &mut policy.machine_deployments_max,
            self.machine_deployments,
        );
        set(&mut policy.profiles.count_max, self.profiles);
        set(&mut policy.profiles.bytes_max, self.profile_bytes);
        set(&mut policy.profile_namespaces, self.profile_namespaces);
        let worker = self.worker_requests.map(|it| it.check("workerRequests"));
        set(&mut policy.worker_requests, worker.transpose()?);
        let management = self
            .management_requests
            .map(|it| it.check("managementRequests"));
        set(&mut policy.management_requests, management.transpose()?);
        let addresses = &mut policy.access.addresses;
        let allowed = self.allowed_servers.map(|it| ranges(&it, "allowedServers"));
        set(&mut addresses.allowed, allowed.transpose()?);
        let denied = self.denied_servers.map(|it| ranges(&it, "deniedServers"));
        set(&mut addresses.denied, denied.transpose()?);
        Ok(PolicyRule {
            applies_to: self.applies_to.check()?,
            policy: Arc::new(policy),
        })
    }
}

impl Tenants {
    fn check(self) -> Result<Match, String> {
        match (self.namespaces.is_empty(), self.namespace_labels.is_empty()) {
            (false, true) => Ok(Match::Namespaces(self.namespaces)),
            (true, false) => Ok(Match::NamespaceLabels(self.namespace_labels)),
            _ => Err("match: name either namespaces or namespaceLabels".to_owned()),
        }
    }
}

impl Requests {
    /// Replacing a Secret takes two requests together.
    fn check(self, field: &str) -> Result<RequestBudget, String> {
        if self.burst.get() < 2 {
            return Err(format!("{field}.burst must be at least 2"));
        }
        Ok(RequestBudget {
            per_second: self.per_second,
            burst: self.burst,
        })
    }
}

fn set<T>(field: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *field = given;
    }
}

fn ranges(texts: &[String], field: &str) -> Result<Vec<AddressRange>, String> {
    let parse = |text: &String| text.parse().map_err(|error| format!("{field}: {error}"));
    texts.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::id::TenantId;

    fn read(text: &str) -> Result<TenantPolicies, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policies.yaml");
        std::fs::write(&path, text).unwrap();
        tenant_policies(Some(&path), TenantPolicy::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_rule_sets_what_it_names_and_leaves_the_rest() {
        let policies = read(
            "- match: {namespaces: [berlin]}\n\
             \x20 class: gold\n\
             \x20 workerRequests: {perSecond: 5, burst: 7}\n\
             \x20 managementRequests: {perSecond: 6, burst: 8}\n\
             \x20 reconciles: 2\n\
             \x20 machineDeployments: 9\n\
             \x20 profiles: 10\n\
             \x20 profileBytes: 11\n\
             \x20 profileNamespaces: [shared]\n\
             \x20 allowedServers: [10.0.0.0/8]\n\
             \x20 deniedServers: [10.1.0.0/16]\n\
             - match: {namespaceLabels: {size: small}}\n\
             \x20 reconciles: 1\n",
        )
        .unwrap();
        let default = TenantPolicy::default();
        let berlin = policies.of(&TenantId::new("berlin"), None).unwrap();
        assert_eq!(berlin.class.as_str(), "gold");
        assert_eq!(berlin.worker_requests.burst.get(), 7);
        assert_eq!(berlin.management_requests.per_second.get(), 6);
        assert_eq!(berlin.reconciles_max, 2);
        assert_eq!(berlin.machine_deployments_max, 9);
        assert_eq!(
            (berlin.profiles.count_max, berlin.profiles.bytes_max),
            (10, 11)
        );
        assert!(berlin.profile_namespaces.contains("shared"));
        let address = |text: &str| format!("{text}:6443").parse().unwrap();
        let rules = &berlin.access.addresses;
        assert!(rules.check(address("10.2.0.1")).is_ok());
        assert!(rules.check(address("10.1.0.1")).is_err());
        assert!(rules.check(address("192.0.2.1")).is_err());
        assert_eq!(
            rules.denied_servers,
            default.access.addresses.denied_servers
        );
        let small = BTreeMap::from([("size".to_owned(), "small".to_owned())]);
        let small = policies.of(&TenantId::new("oslo"), Some(&small)).unwrap();
        let expected = TenantPolicy {
            reconciles_max: 1,
            ..default
        };
        assert_eq!(**small, expected);
    }

    #[test]
    fn at_most_eight_classes_are_named_beside_the_default_one() {
        let rules = |classes: &[&str]| -> String {
            let rule = |class| format!("- match: {{namespaces: [a]}}\n  class: {class}\n");
            classes.iter().map(rule).collect()
        };
        let classes = ["a", "b", "c", "default", "d", "e", "a", "f", "g", "h", "i"];
        let policies = read(&rules(&classes[..10])).unwrap();
        assert_eq!(policies.classes().len(), CLASSES_MAX + 1);
        let refused = read(&rules(&classes)).unwrap_err();
        let expected = "rule 11: class: i is one too many: rules may name at most 8 classes";
        assert!(refused.ends_with(expected), "{refused}");
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_place() {
        for (text, expected) in [
            (
                "- match: {namespaces: [a]}\n  reconcile: 2\n",
                "unknown field `reconcile`",
            ),
            ("- match: {namespaces: [a]}\n  reconcile: 2\n", "line 2"),
            ("- match: {labels: {a: b}}\n", "unknown field `labels`"),
            ("- match: {}\n", "rule 1: match: name either"),
            (
                "- match: {namespaces: [a], namespaceLabels: {a: b}}\n",
                "rule 1: match: name either",
            ),
            ("- reconciles: 2\n", "missing field `match`"),
            ("- match: {namespaces: [a]}\n  reconciles: 0\n", "line 2"),
            (
                "- match: {namespaces: [a]}\n  workerRequests: {perSecond: 1, burst: 1}\n",
                "rule 1: workerRequests.burst must be at least 2",
            ),
            (
                "- match: {namespaces: [a]}\n- match: {namespaces: [b]}\n  deniedServers: [x]\n",
                "rule 2: deniedServers: ",
            ),
            (
                "- match: {namespaces: [a]}\n- match: {namespaces: [b]}\n  class: Gold\n",
                "rule 2: class: a class has 1 to 20 lower-case letters",
            ),
            ("- match: {namespaces: [a]}\n  class: [gold]\n", "line 2"),
            ("match: {namespaces: [a]}\n", "line 1"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }
}
