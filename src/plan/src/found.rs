//! Decides about a machine deployment before its documents do: whether it is served, and with which
//! profile. Reconciles and commands use the same functions, each with its own sources, so that a
//! command gives the reason that a reconcile would give.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube_core::ResourceExt;

use super::invalid::{Invalid, Shortage};
use osm_api::{
    machine_deployment::MachineDeployment,
    names::{FINALIZER, KUBE_SYSTEM, PROFILE, PROFILE_NAMESPACE, REVISION, is_name_alone},
    reason::Reason,
    worker_cluster::ProfileAnnotation,
};
use osm_render::{input::ProviderConfig, overlay::OverlayError};
use osm_rules::machine_deployment::default_profile;
use osm_tenant::policy::TenantPolicy;

/// machine-controller sets the revision right after it creates the first MachineSet; a machine
/// deployment without one is served with an empty revision after this long.
const REVISION_WAIT: Duration = Duration::from_secs(1);

/// A default profile that is being installed is looked up again after this long, if its event has
/// not come before.
const PROFILE_WAIT: Duration = Duration::from_secs(1);

/// The reason why a machine deployment is not served now.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotServed {
    /// Something must be changed first.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// Something is still to come.
    #[error("waiting: {reason}")]
    Waiting {
        /// The reason.
        reason: Reason,
        /// How long to wait before the next attempt.
        retry_after: Duration,
    },
}

impl NotServed {
    /// Returns the machine-readable CamelCase reason.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Invalid(invalid) => invalid.reason(),
            Self::Waiting { reason, .. } => *reason,
        }
    }
}

/// What a machine deployment that we serve lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// The default profile for its annotation, if it names none.
    pub profile: Option<&'static str>,
    /// True if our finalizer is missing.
    pub finalizer: bool,
}

impl Lacking {
    /// Returns true if nothing is missing.
    pub const fn is_nothing(self) -> bool {
        self.profile.is_none() && !self.finalizer
    }
}

/// Returns what a machine deployment lacks before it can be served; `None` if we do not serve it,
/// because it names no profile and the tenant requires one. `unnamed` is what the tenant wants of
/// machine deployments without a profile.
///
/// # Errors
///
/// Too little of it can be read, or there is no default profile for it.
pub fn lacking(
    machine_deployment: &MachineDeployment,
    unnamed: ProfileAnnotation,
) -> Result<Option<Lacking>, Invalid> {
    if is_name_alone(&machine_deployment.metadata) {
        return Err(Invalid::TooLarge);
    }
    let named = machine_deployment.annotations().get(PROFILE);
    let has_profile = named.is_some_and(|name| !name.is_empty());
    let finalizer = !has_finalizer(machine_deployment);
    if !has_profile && finalizer && unnamed == ProfileAnnotation::RequireAnnotation {
        return Ok(None);
    }
    if machine_deployment.spec.is_unreadable {
        return Err(Invalid::Unreadable);
    }
    let profile = if has_profile {
        None
    } else {
        Some(default_of(machine_deployment)?)
    };
    Ok(Some(Lacking { profile, finalizer }))
}

/// Returns true if a machine deployment has our finalizer.
pub fn has_finalizer(machine_deployment: &MachineDeployment) -> bool {
    let mut finalizers = machine_deployment.finalizers().iter();
    finalizers.any(|name| name == FINALIZER)
}

fn default_of(machine_deployment: &MachineDeployment) -> Result<&'static str, Invalid> {
    let provider = provider(machine_deployment)?;
    let utility = provider.provisioning_utility();
    let utility = utility.map_err(|error| Invalid::ProviderSpec(Arc::new(error)))?;
    let (system, cloud) = (&provider.operating_system, &provider.cloud_provider);
    Ok(default_profile(system, cloud, utility.as_str())?)
}

/// Returns the decoded provider spec.
///
/// # Errors
///
/// It cannot be decoded.
pub fn provider(machine_deployment: &MachineDeployment) -> Result<ProviderConfig, Invalid> {
    let provider_spec = &machine_deployment.spec.template.spec.provider_spec;
    ProviderConfig::decode(&provider_spec.json())
        .map_err(|error| Invalid::ProviderSpec(Arc::new(error)))
}

/// Returns when a machine deployment was created.
pub fn created(machine_deployment: &MachineDeployment) -> Timestamp {
    machine_deployment
        .creation_timestamp()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// Checks that machine-controller has set the revision, or had the time to. Times in objects have
/// whole seconds: the wait may be a second longer than it should.
///
/// # Errors
///
/// The revision is still to come.
pub fn check_revision(
    machine_deployment: &MachineDeployment,
    now: Timestamp,
) -> Result<(), NotServed> {
    let is_set = machine_deployment.annotations().contains_key(REVISION);
    // A machine deployment out of a file was not created.
    if is_set || machine_deployment.metadata.creation_timestamp.is_none() {
        return Ok(());
    }
    // A clock that is behind delays nothing.
    let age = Duration::try_from(now.duration_since(created(machine_deployment)));
    let left = age.ok().and_then(|age| REVISION_WAIT.checked_sub(age));
    match left.filter(|left| !left.is_zero()) {
        Some(retry_after) => Err(NotServed::Waiting {
            reason: Reason::AwaitingRevision,
            retry_after,
        }),
        None => Ok(()),
    }
}

/// The profile that a machine deployment names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileName {
    /// The profile's namespace, in the management cluster.
    pub namespace: String,
    /// The profile's name.
    pub name: String,
}

impl fmt::Display for ProfileName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

impl ProfileName {
    /// Returns the profile that a machine deployment names. `home` is the namespace of the tenant's
    /// own profiles.
    ///
    /// # Errors
    ///
    /// The tenant may not use profiles of that namespace.
    pub fn of(
        machine_deployment: &MachineDeployment,
        home: &str,
        policy: &TenantPolicy,
    ) -> Result<Self, Invalid> {
        let annotations = machine_deployment.annotations();
        let named = annotations.get(PROFILE_NAMESPACE).map(String::as_str);
        let namespace = profile_namespace(home, policy, named);
        if !policy.allows_profiles_of(home, &namespace) {
            return Err(Invalid::ProfileForbidden { namespace });
        }
        let name = annotations.get(PROFILE).cloned().unwrap_or_default();
        Ok(Self { namespace, name })
    }
}

/// Returns the namespace that a machine deployment's profile is read from. `home` is the namespace
/// of the tenant's own profiles. `kube-system`, where the program that osm replaces has its
/// profiles, means that one, too.
///
/// ```
/// use osm_plan::found::profile_namespace;
/// use osm_tenant::policy::TenantPolicy;
///
/// let policy = TenantPolicy::default();
/// let of = |named| profile_namespace("berlin", &policy, named);
/// assert_eq!(of(None), "berlin");
/// assert_eq!(of(Some("kube-system")), "berlin");
/// assert_eq!(of(Some("shared")), "shared");
/// ```
pub fn profile_namespace(home: &str, policy: &TenantPolicy, named: Option<&str>) -> String {
    match named.unwrap_or_default() {
        KUBE_SYSTEM if policy.allows_profiles_of(home, KUBE_SYSTEM) => KUBE_SYSTEM.to_owned(),
        "" | KUBE_SYSTEM => home.to_owned(),
        named => named.to_owned(),
    }
}

/// The profiles that a caller knows.
pub trait Profiles {
    /// A profile merged with what it extends.
    type Profile;

    /// Returns a profile merged with what it extends, if it exists.
    fn resolved(&self, namespace: &str, name: &str) -> Option<Result<Self::Profile, OverlayError>>;

    /// Returns true if a profile exists and cannot be decoded.
    fn is_unreadable(&self, namespace: &str, name: &str) -> bool;

    /// Returns the limit that a profile exceeds, if there is no room for it.
    fn shortage(&self, namespace: &str, name: &str) -> Option<Shortage>;
}

/// Returns the profile. `awaits` returns true if a profile that does not exist in the profile's
/// namespace is about to be installed there.
///
/// # Errors
///
/// The profile, or one that it extends, does not exist or cannot be used.
pub fn find_profile<P: Profiles>(
    named: &ProfileName,
    profiles: &P,
    awaits: impl Fn(&str) -> bool,
) -> Result<P::Profile, NotServed> {
    let ProfileName { namespace, name } = named.clone();
    let (name, invalid) = match profiles.resolved(&namespace, &name) {
        Some(Ok(profile)) => return Ok(profile),
        None => (name.clone(), Invalid::ProfileMissing { namespace, name }),
        Some(Err(error)) => match &error {
            OverlayError::BaseMissing { base, .. } => (base.clone(), Invalid::Overlay(error)),
            _ => return Err(Invalid::Overlay(error).into()),
        },
    };
    let namespace = named.namespace.clone();
    if profiles.is_unreadable(&namespace, &name) {
        return Err(Invalid::ProfileUnreadable { namespace, name }.into());
    }
    if let Some(shortage) = profiles.shortage(&namespace, &name) {
        let invalid = Invalid::ProfileOverQuota {
            namespace,
            name,
            shortage,
        };
        return Err(invalid.into());
    }
    if awaits(&name) {
        return Err(NotServed::Waiting {
            reason: Reason::AwaitingProfile,
            retry_after: PROFILE_WAIT,
        });
    }
    Err(invalid.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn without_a_revision_a_machine_deployment_waits_for_its_first_second() {
        let at = |milliseconds| Timestamp::from_millisecond(milliseconds).unwrap();
        let left = |found: &MachineDeployment, now| match check_revision(found, at(now)) {
            Err(NotServed::Waiting { retry_after, .. }) => Some(retry_after.as_millis()),
            _ => None,
        };
        let mut found = MachineDeployment::default();
        assert_eq!(left(&found, 0), None, "it was not created");
        found.metadata.creation_timestamp = Some(Time(at(10_000)));
        assert_eq!(left(&found, 10_000), Some(1_000));
        assert_eq!(left(&found, 10_999), Some(1));
        assert_eq!(left(&found, 11_000), None);
        assert_eq!(left(&found, 60_000), None);
        assert_eq!(left(&found, 9_000), None, "a clock that is behind");
        let annotations = found.annotations_mut();
        annotations.insert(REVISION.to_owned(), "1".to_owned());
        assert_eq!(left(&found, 10_000), None);
    }

    #[test]
    fn the_namespace_of_the_program_before_us_means_the_tenants_own() {
        let policy = TenantPolicy::default();
        let of = |named| profile_namespace("berlin", &policy, named);
        for named in [None, Some(""), Some(KUBE_SYSTEM), Some("berlin")] {
            assert_eq!(of(named), "berlin", "{named:?}");
        }
        assert_eq!(of(Some("lisbon")), "lisbon", "to be refused");
        let allowing = TenantPolicy {
            profile_namespaces: BTreeSet::from([KUBE_SYSTEM.to_owned()]),
            ..TenantPolicy::default()
        };
        let named = profile_namespace("berlin", &allowing, Some(KUBE_SYSTEM));
        assert_eq!(named, KUBE_SYSTEM);
    }
}
