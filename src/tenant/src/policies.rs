//! Selects the policy of each tenant: rules by the name or the labels of the tenant's namespace, of
//! which the first match applies.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{address::DeniedServer, class::TenantClass, id::TenantId, policy::TenantPolicy};

/// The tenants to which a rule applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The tenants in these namespaces.
    Namespaces(BTreeSet<String>),
    /// The tenants whose namespace has all of these labels.
    NamespaceLabels(BTreeMap<String, String>),
}

/// A rule, and the policy of the tenants that match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule {
    /// The tenants to which it applies.
    pub applies_to: Match,
    /// Their policy.
    pub policy: Arc<TenantPolicy>,
}

/// The policies of all tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantPolicies {
    /// The rules. The first match applies.
    pub rules: Vec<PolicyRule>,
    /// The policy of tenants that no rule matches.
    pub default: Arc<TenantPolicy>,
}

/// The error if the policy depends on the labels of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelsWanted;

impl TenantPolicies {
    /// Returns the policy of a tenant. Without labels, it is known only if no rule before the one
    /// that matches needs them.
    ///
    /// # Errors
    ///
    /// A rule needs the labels.
    pub fn of(
        &self,
        tenant: &TenantId,
        labels: Option<&BTreeMap<String, String>>,
    ) -> Result<&Arc<TenantPolicy>, LabelsWanted> {
        for rule in &self.rules {
            let matches = match (&rule.applies_to, labels) {
                (Match::Namespaces(names), _) => names.contains(tenant.namespace()),
                (Match::NamespaceLabels(_), None) => return Err(LabelsWanted),
                (Match::NamespaceLabels(wanted), Some(labels)) => wanted
                    .iter()
                    .all(|(key, value)| labels.get(key) == Some(value)),
            };
            if matches {
                return Ok(&rule.policy);
            }
        }
        Ok(&self.default)
    }

    /// Returns the policy of a tenant, or the default policy if it depends on labels.
    pub fn of_unlabelled(&self, tenant: &TenantId) -> &Arc<TenantPolicy> {
        self.of(tenant, None).unwrap_or(&self.default)
    }

    /// Returns the namespaces from which some tenant may use profiles, besides its own.
    pub fn profile_namespaces(&self) -> BTreeSet<String> {
        self.all()
            .flat_map(|policy| policy.profile_namespaces.iter().cloned())
            .collect()
    }

    /// Returns the classes of all tenants.
    pub fn classes(&self) -> BTreeSet<&TenantClass> {
        self.all().map(|policy| &policy.class).collect()
    }

    /// Denies this server to all tenants.
    pub fn deny_server(&mut self, server: &DeniedServer) {
        let rules = self.rules.iter_mut().map(|rule| &mut rule.policy);
        for policy in rules.chain([&mut self.default]) {
            let denied = &mut Arc::make_mut(policy).access.addresses.denied_servers;
            denied.push(server.clone());
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<TenantPolicy>> {
        let rules = self.rules.iter().map(|rule| &rule.policy);
        rules.chain([&self.default])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(applies_to: Match, reconciles_max: usize) -> PolicyRule {
        PolicyRule {
            applies_to,
            policy: Arc::new(TenantPolicy {
                reconciles_max,
                profile_namespaces: BTreeSet::from([format!("shared-{reconciles_max}")]),
                ..TenantPolicy::default()
            }),
        }
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    fn policies() -> TenantPolicies {
        let names = |names: [&str; 2]| Match::Namespaces(names.map(str::to_owned).into());
        let large = labels(&[("size", "large"), ("paid", "yes")]);
        TenantPolicies {
            rules: vec![
                rule(names(["berlin", "oslo"]), 11),
                rule(Match::NamespaceLabels(large), 12),
                rule(names(["berlin", "lisbon"]), 13),
            ],
            default: Arc::default(),
        }
    }

    #[test]
    fn the_first_rule_that_matches_holds() {
        let policies = policies();
        let default = TenantPolicy::default().reconciles_max;
        let large = labels(&[("size", "large"), ("paid", "yes"), ("other", "too")]);
        let half = labels(&[("size", "large")]);
        for (tenant, labels, expected) in [
            ("berlin", &large, 11),
            ("lisbon", &large, 12),
            ("lisbon", &half, 13),
            ("madrid", &large, 12),
            ("madrid", &half, default),
        ] {
            let policy = policies.of(&TenantId::new(tenant), Some(labels)).unwrap();
            assert_eq!(policy.reconciles_max, expected, "{tenant} {labels:?}");
        }
    }

    #[test]
    fn labels_are_wanted_only_where_they_decide() {
        let policies = policies();
        let berlin = policies.of(&TenantId::new("berlin"), None);
        assert_eq!(berlin.map(|policy| policy.reconciles_max), Ok(11));
        let lisbon = TenantId::new("lisbon");
        assert_eq!(policies.of(&lisbon, None), Err(LabelsWanted));
        assert_eq!(policies.of_unlabelled(&lisbon), &policies.default);
    }

    #[test]
    fn a_server_is_denied_to_all_and_their_profile_namespaces_are_known() {
        let mut policies = policies();
        let server: DeniedServer = "api.example:6443".parse().unwrap();
        policies.deny_server(&server);
        for policy in policies.all() {
            assert!(policy.access.addresses.denied_servers.contains(&server));
        }
        let namespaces = Vec::from_iter(policies.profile_namespaces());
        assert_eq!(namespaces, ["shared-11", "shared-12", "shared-13"]);
    }
}
