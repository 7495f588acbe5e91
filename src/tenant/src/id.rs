//! The identities of tenants and registrations. They are cheap to clone, because every queue, log
//! line and map contains them.

use std::{fmt, sync::Arc};

/// A tenant: the name of its namespace in the management cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// Creates the id of the tenant in a namespace.
    pub fn new(namespace: &str) -> Self {
        Self(namespace.into())
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The Secret that registers a worker cluster. A namespace may contain several, of which one is
/// served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistrationId {
    /// The tenant, which is the Secret's namespace.
    pub tenant: TenantId,
    /// The Secret's name.
    pub name: Arc<str>,
}

impl RegistrationId {
    /// Creates the id of a registration from its Secret's namespace and name.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            tenant: TenantId::new(namespace),
            name: name.into(),
        }
    }
}

impl fmt::Display for RegistrationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.tenant, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_shown_as_kubectl_shows_them() {
        let registration = RegistrationId::new("tenant-berlin", "kubeconfig");
        assert_eq!(registration.to_string(), "tenant-berlin/kubeconfig");
        assert_eq!(registration.tenant.to_string(), "tenant-berlin");
    }
}
