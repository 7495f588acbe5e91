//! Why something is as it is: the reasons in conditions, in the entries of machine deployments, and
//! in Events, each with its severity, who can act, and what to do. `docs/reasons.md` explains them.

use std::fmt;

use serde::Serialize;

/// How bad a reason is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Everything is as it should be, or as somebody asked for.
    Normal,
    /// Something is still to come. Nothing is wrong.
    Pending,
    /// What was asked for is done, and somebody should look at it.
    Warning,
    /// Something that was asked for is not done.
    Error,
}

impl Severity {
    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Pending => "Pending",
            Self::Warning => "Warning",
            Self::Error => "Error",
        }
    }
}

/// Who can act on a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Actor {
    /// Nobody has to: it is retried, or nothing is wrong.
    Nobody,
    /// The operator of the platform, who runs the manager and registers worker clusters.
    Operator,
    /// The tenant, who writes machine deployments and profiles.
    Tenant,
    /// One of the two.
    Either,
}

impl Actor {
    /// Returns who that is; absent where nobody has to act.
    pub const fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Nobody => None,
            Self::Operator => Some("operator"),
            Self::Tenant => Some("tenant"),
            Self::Either => Some("operator or tenant"),
        }
    }
}

/// Declares the reasons, each with its severity, who can act, and what to do in Markdown; empty
/// where there is nothing to do.
macro_rules! reasons {
    ($($name:ident: $severity:ident, $actor:ident => $remediation:literal,)*) => {
        /// A reason: a word for programs, which users look up.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Reason {
            $(#[doc = concat!("`", stringify!($name), "`.")] $name,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// Returns how bad it is.
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$name => Severity::$severity,)*
                }
            }

            /// Returns who can act on it.
            pub const fn actor(self) -> Actor {
                match self {
                    $(Self::$name => Actor::$actor,)*
                }
            }

            /// Returns what to do about it, in Markdown; empty if there is nothing to do.
            pub const fn remediation_in_markdown(self) -> &'static str {
                match self {
                    $(Self::$name => $remediation,)*
                }
            }
        }
    };
}

reasons! {
    // Of Ready, which else repeats the reason of another condition.
    Ready: Normal, Nobody => "",
    Engaging: Pending, Nobody => "",
    // Of Registered.
    Accepted: Normal, Nobody => "",
    SettingsRestored: Warning, Operator => "Check the `spec`, and confirm it with the command in the message.",
    KubeconfigRefused: Error, Operator =>
        "Correct the kubeconfig in the Secret, or create it again by `osm tenant add`.",
    PolicyUnknown: Error, Operator =>
        "The message has the API server's answer. Grant `get namespaces`, see \
        [permissions](install.md#permissions).",
    NamespaceTaken: Error, Operator => "Remove one of the two.",
    Paused: Normal, Nobody => "",
    WorkerClusterUnreadable: Error, Operator =>
        "`osm tenants` and `osm doctor` name it. Correct it, or use the version that wrote it. \
        Retried.",
    NoWorkerCluster: Error, Operator =>
        "Does a WorkerCluster with the Secret's name refer to another Secret? May the process \
        create WorkerClusters? Retried.",
    FederationFailed: Error, Operator =>
        "Act on the API server's answer in the message, or run the command in it. Retried.",
    RegistrationRemoved: Error, Operator => "See [removing a registration](register.md#remove).",
    // Of ProfilesInstalled, NodeCredentials, MachineDeploymentsServed, MachinesCanJoin,
    // MachinesCurrent, DocumentsApplied.
    NotEngaged: Pending, Nobody => "See that condition.",
    AnotherFleet: Error, Operator =>
        "Let only one of the two fleets watch the namespace (`--namespace`, `--except-namespace`). \
        The one that waits asks again, and takes over once nobody answers.",
    // Of any but Registered and Adopted.
    NotRegistered: Pending, Nobody => "See `Registered`.",
    // Of Claimed, Prepared, NodeCredentials, MachineDeploymentsServed, MachinesCanJoin,
    // MachinesCurrent, DocumentsApplied.
    NotConnected: Pending, Nobody => "See `Connected`.",
    // Of Connected.
    Healthy: Normal, Nobody => "",
    Unreachable: Error, Operator =>
        "Check the network, the address and the certificate from where the manager runs. See \
        [a cluster that cannot be reached](troubleshoot.md#a-cluster-cannot-be-reached).",
    CredentialRefused: Error, Operator =>
        "Put a valid kubeconfig into the Secret: `osm tenant add` makes one.",
    ClocksDiffer: Warning, Operator =>
        "Let both machines synchronise their clocks. If the message is the same for all tenants, \
        the manager's clock is wrong.",
    EventsDelayed: Warning, Operator =>
        "The events are read with a delay. Find out who changes machine deployments or Secrets \
        in the worker cluster all the time. The first successful call a minute after the last \
        delay clears this reason.",
    WatchFailed: Error, Operator =>
        "Remove the cause, for example by deleting objects. The reason is cleared a minute after \
        the last failure.",
    Degraded: Error, Operator =>
        "After 403, apply what `osm rbac worker` prints, as `osm tenant add` does. Otherwise, find \
        out why the API server fails.",
    Quarantined: Error, Operator =>
        "Find out why the replicas crashed: `kubectl describe pod` (`OOMKilled`?) and the logs \
        of the previous container (`kubectl logs --previous`). If one tenant stays in \
        quarantine, compare its objects with those of others, and report the crash.",
    UpstreamRunning: Error, Operator => "Scale it to zero. Retried.",
    LeftoverWebhooks: Error, Operator => "Run the command in the message. Retried.",
    AdoptionForbidden: Error, Operator => "Apply what `osm rbac worker-adoption` prints. Retried.",
    ProfilesCopied: Normal, Nobody => "",
    SecretsKept: Normal, Nobody => "",
    SecretsDiffer: Warning, Operator => "See `KeptAsFound`.",
    NothingToAdopt: Normal, Nobody => "",
    // Of Claimed.
    Claimed: Normal, Nobody => "",
    ClusterChanged: Error, Operator =>
        "Put the old kubeconfig back, or, if you rebuilt the cluster, set \
        `spec.confirmedClusterUid` to the uid in the message.",
    ClaimedByOther: Error, Operator =>
        "Remove the other registration with `Release` or `Purge`. If the holder no longer \
        exists, remove its annotation; if its management cluster was [restored as this \
        one](backup.md), set `--former-management-cluster`. Retried.",
    NotClaimed: Pending, Nobody => "See `Ready`.",
    ClaimFailed: Error, Nobody =>
        "Retried. If it stays, act on the API server's answer in the message.",
    // Of Prepared.
    Prepared: Normal, Nobody => "",
    PrerequisitesFailed: Error, Nobody =>
        "Retried. If it stays, act on the API server's answer in the message.",
    NamespaceTerminating: Error, Nobody =>
        "Retried. If it stays, `kubectl get namespace cloud-init-settings -o yaml` shows what \
        holds it.",
    RightsMissing: Error, Operator =>
        "Run `osm rbac worker | kubectl apply --server-side --force-conflicts -f -` in the worker \
        cluster, or `osm tenant add` again. Retried: \
        everything comes back by itself, and only the fetcher's token is another one.",
    FetcherRefused: Error, Operator =>
        "Run the command in the message, or apply what `osm rbac worker` prints, whose last rule \
        for `cloud-init-settings` allows the manager to correct it.",
    TokenPending: Error, Nobody => "Retried. If this persists: does the cluster run the token controller?",
    NoApiServer: Error, Operator =>
        "Publish `kube-public/cluster-info`, or let the endpoints of Service `default/kubernetes` \
        become ready. See [what a worker cluster needs](register.md#what-a-worker-cluster-needs).",
    ClusterInfoInvalid: Error, Operator =>
        "Correct `cluster-info`, or delete it: the endpoints of Service `default/kubernetes` \
        then take its place. Retried.",
    FactsFailed: Error, Nobody =>
        "Retried. If it stays, act on the API server's answer in the message.",
    MachineDeploymentNotServed: Error, Operator => "Install machine-controller. Retried.",
    ProfileNotServed: Error, Operator =>
        "Install the CRDs in the worker cluster, which is the tenant's home: those of KubeOne or \
        KKP, or `osm crds`. Retried.",
    InventoryFailed: Error, Nobody =>
        "Retried. If it stays, act on the API server's answer in the message.",
    // Of ProfilesInstalled.
    Installed: Normal, Nobody => "",
    Disabled: Normal, Nobody => "",
    AwaitingTurn: Pending, Nobody => "See [newer default profiles](roll-out.md#newer-default-profiles).",
    AwaitingApproval: Pending, Operator => "",
    RolloutPaused: Warning, Operator => "Find the tenants in the log, and check their entries.",
    InstallFailed: Error, Nobody =>
        "Retried. If it stays, act on the API server's answer in the message.",
    // Of NodeCredentials.
    PerMachineDeployment: Normal, Nobody => "",
    Forbidden: Warning, Operator => "Apply what `osm rbac worker-node-credentials` prints to the worker cluster. Retried every 5 min.",
    SharedGetter: Normal, Nobody => "",
    // Of MachineDeploymentsServed.
    AllServed: Normal, Nobody => "",
    SomeNotServed: Error, Tenant =>
        "Read their entries in `status.machineDeployments`, or run `osm explain` with the name of \
        one.",
    // Of MachinesCanJoin.
    CanJoin: Normal, Nobody => "",
    AuthoritiesDiffer: Error, Operator =>
        "Correct `apiServerOverride`, `kubernetesCABundle` or `cluster-info`, so that both have the \
        authority of the machines' API server.",
    AddressUnusable: Error, Operator => "Correct `apiServerOverride` or `cluster-info`.",
    CertificateRefused: Error, Operator =>
        "Correct `apiServerOverride`, `kubernetesCABundle` or `cluster-info`. A registration \
        through a relay puts the relay's authority into documents: set `kubernetesCABundle` to \
        the cluster's.",
    FetchRefused: Error, Operator =>
        "If the token itself is not accepted, delete the Secret that the message names: the \
        manager creates it again. Otherwise compare the ServiceAccount, Role and RoleBinding \
        `cloud-init-getter`. `Prepared` says what the manager may not correct.",
    BootstrapTokenRefused: Error, Operator =>
        "Does the API server run with `--enable-bootstrap-token-auth`? Is the address that of \
        this cluster?",
    JoinForbidden: Error, Operator =>
        "machine-controller's manifests bind the ClusterRole `system:node-bootstrapper` to the \
        group `system:bootstrappers:machine-controller:default-node-token`; \
        `tenants-example/worker-crds/kubelet-bootstrap.yaml` has the binding.",
    ApprovalForbidden: Error, Operator =>
        "machine-controller's manifests bind the ClusterRole \
        `system:certificates.k8s.io:certificatesigningrequests:nodeclient` to the group \
        `system:bootstrappers:machine-controller:default-node-token`; \
        `tenants-example/worker-crds/kubelet-bootstrap.yaml` has the binding.",
    ApprovalPending: Warning, Operator =>
        "Certificates of kubelets are approved by the cluster's own kube-controller-manager; those \
        that nodes renew need a binding, which the message names.",
    AuthorityExpired: Error, Operator =>
        "Neither `curl` nor a kubelet trusts an authority that has expired. The message says where \
        its successor belongs.",
    AuthorityExpiresSoon: Warning, Operator => "The message says where its successor belongs.",
    UnexpectedAnswer: Error, Operator =>
        "What answers at the machines' address is no API server of this cluster, or it is not well. \
        Correct `apiServerOverride` or `cluster-info`.",
    NotChecked: Warning, Operator => "If only the machines' network reaches the address, there is nothing to do.",
    // Of MachinesCurrent.
    MachinesCurrent: Normal, Nobody => "",
    MachinesOutdated: Pending, Nobody => "See [replacing machines](roll-out.md#replacing-machines).",
    ChangeAboveLimit: Warning, Operator =>
        "Permit the change by `osm tenant permit`, raise `maxClass` beside `replace` in `spec.rollout.machines`, or replace the machines.",
    MachinesHeldUp: Error, Tenant => "Check its machines.",
    MachineRolloutFailed: Error, Nobody =>
        "Retried. If it stays, act on the API server's answer in the message.",
    MachinesLeftAlone: Normal, Nobody => "",
    // Of DocumentsApplied.
    DocumentsApplied: Normal, Nobody => "",
    MachinesDiffer: Warning, Tenant =>
        "`kubectl describe node`: the condition `DocumentApplied` names the files and services. Put \
        them right, or replace the machine.",
    MachinesBehind: Pending, Nobody => "See [replacing machines](roll-out.md#replacing-machines).",
    NoReports: Pending, Nobody => "Machines that run begin when they are replaced.",
    NodesForbidden: Pending, Operator =>
        "Apply what `osm rbac worker-machine-reports` prints to the worker cluster, or give its right \
        to the user of the kubeconfig. Retried.",
    // Of CredentialValid.
    Valid: Normal, Nobody => "",
    ExpiresSoon: Warning, Operator => "Put a new kubeconfig into the Secret.",
    ExpiresVerySoon: Warning, Operator => "Put a new kubeconfig into the Secret now.",
    Expired: Error, Operator => "Put a new kubeconfig into the Secret.",
    RenewalFailed: Warning, Operator =>
        "Run the command in the message, or put a new kubeconfig into the Secret. Retried every 10 min.",
    // Of Released.
    Released: Normal, Nobody => "",
    Purged: Normal, Nobody => "",
    NeverEngaged: Normal, Nobody => "",
    Kept: Pending, Operator =>
        "Run the command in the message, or register the cluster again, and remove it with another \
        `onRemoval`.",
    ReleaseFailed: Error, Nobody =>
        "The message has the API server's answer, and the command that gives the cluster back.",
    KubeconfigGone: Error, Operator => "Run the command in the message.",
    // Of a machine deployment.
    Current: Normal, Nobody => "",
    KeptAsFound: Warning, Tenant =>
        "To see our documents beforehand, use `osm render`. To switch to them, change the \
        revision.",
    AwaitingRevision: Pending, Nobody =>
        "If it stays, machine-controller does not run, or does not process the machine deployment.",
    AwaitingProfile: Pending, Nobody => "",
    AwaitingCluster: Pending, Nobody => "See `Connected`.",
    AwaitingNodeCredentials: Pending, Nobody => "If this persists: does the cluster run the token controller?",
    Unreadable: Error, Tenant => "Correct the machine deployment.",
    TooLarge: Error, Either =>
        "Shorten its annotations, labels and provider spec, or those of others; or raise \
        `--tenant-machine-deployments`.",
    Conflict: Pending, Nobody => "",
    ProfileUnreadable: Error, Tenant =>
        "`kubectl get osp NAME -o yaml > p.yaml; osm lint p.yaml` names the field. Correct it \
        under another `spec.version`.",
    ProfileNotFound: Error, Tenant => "Create it, or name another in `k8c.io/operating-system-profile`.",
    ProfileQuotaExceeded: Error, Either =>
        "Remove some. For the quota, raise `--tenant-profiles` or `--tenant-profile-bytes`; for \
        the memory, see `OsmBudgetShort`. It is retried once a minute.",
    ProfileForbidden: Error, Tenant => "",
    ProfileBaseNotFound: Error, Tenant => "Create the base, or name another in `spec.extends`.",
    ProfileContentUnknown: Error, Operator =>
        "[Copy the content](roll-out.md#thin-default-profiles) from the manager that installed it, or \
        from a backup.",
    OverlayCycle: Error, Tenant => "Remove `spec.extends` from one of them.",
    OverlayTooDeep: Error, Tenant => "Extend a profile that is closer to the base.",
    OverlayMismatch: Error, Tenant => "Use that of the base, or extend another profile.",
    ProfileUnusable: Error, Tenant => "Correct the profile.",
    OperatingSystemProfileError: Error, Tenant => "",
    NoDefaultProfile: Error, Tenant => "Name a profile in its annotation `k8c.io/operating-system-profile`.",
    SettingsRefused: Error, Operator => "",
    ProviderSpecRefused: Error, Tenant => "",
    NameTaken: Error, Tenant => "Rename one of the two.",
    NamesCollide: Error, Tenant => "Shorten its name, or use another namespace.",
    NameTooLong: Error, Tenant => "",
    TooManyMachineDeployments: Error, Either => "Remove some, or raise the limit.",
    RenderFailed: Error, Tenant => "",
    UserDataTooLarge: Error, Tenant =>
        "Shrink the file that the message names; see [user-data-sizes.md](user-data-sizes.md).",
    UserDataNearLimit: Warning, Tenant => "Shrink it before it grows further.",
    SecretRestored: Warning, Tenant =>
        "Find out who writes Secrets in `cloud-init-settings`. The audit log of the worker cluster's \
        API server has it.",
    KubeletUnsupported: Warning, Tenant =>
        "Use a version of [a supported minor](compatibility.md). Machines get their documents, and \
        may not join.",
    RenderPanicked: Error, Operator => "Report it.",
    RenderStopped: Error, Tenant =>
        "Simplify the templates; `osm render` shows their output. If the manager's CPU is \
        throttled, raise its limit.",
    RegistryCredentialsRefused: Error, Operator => "Correct the Secret.",
    BootstrapAccountWithoutToken: Error, Operator =>
        "Create the Secret, and name it in the ServiceAccount's `secrets`.",
    CallFailed: Error, Nobody => "The message has the call and the answer.",
    // Of an Event alone.
    DefaultProfileEdited: Warning, Operator =>
        "[Extend it](write-a-profile.md#extend-a-profile) instead: then it gets newer versions.",
    DefaultProfileReplaced: Warning, Operator =>
        "[Extend it](write-a-profile.md#extend-a-profile): a profile of another name is not \
        replaced.",
    ReplacingMachines: Normal, Nobody => "",
}

impl Reason {
    /// Returns the reason that a word stands for, if this version knows it.
    ///
    /// ```
    /// use osm_api::reason::{Actor, Reason, Severity};
    ///
    /// let reason = Reason::named("UpstreamRunning").expect("this version knows it");
    /// assert_eq!(reason.severity(), Severity::Error);
    /// assert_eq!(reason.actor(), Actor::Operator);
    /// assert_eq!(reason.remediation().as_deref(), Some("Scale it to zero. Retried."));
    /// assert_eq!(Reason::named("OfANewerRelease"), None);
    /// ```
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.as_str() == word)
    }

    /// Returns true if something is not done until a person acts.
    pub fn needs_a_person(self) -> bool {
        self.severity() == Severity::Error && self.actor() != Actor::Nobody
    }

    /// Returns what to do about it, if there is something to do.
    pub fn remediation(self) -> Option<String> {
        Some(plain(self.remediation_in_markdown())).filter(|text| !text.is_empty())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Compares with a word of a status, which another release may have written.
impl PartialEq<&str> for Reason {
    fn eq(&self, word: &&str) -> bool {
        self.as_str() == *word
    }
}

impl PartialEq<Reason> for String {
    fn eq(&self, reason: &Reason) -> bool {
        self == reason.as_str()
    }
}

/// Returns a text without the marks of Markdown. A link is its text and its page below `docs`.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once("](") {
        let (page, after) = link.split_once(')').unwrap_or((link, ""));
        match before.strip_suffix(page) {
            // The text of the link is the page.
            Some(before) => text.extend([before, "docs/", page]),
            None => text.extend([before, " (docs/", page, ")"]),
        }
        rest = after;
    }
    text.push_str(rest);
    text.replace(['`', '['], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_answered_without_marks() {
        let said = |word: &str| Reason::named(word).and_then(Reason::remediation);
        assert_eq!(
            said("UpstreamRunning").unwrap(),
            "Scale it to zero. Retried."
        );
        let large = said("UserDataTooLarge").unwrap();
        let page = "see docs/user-data-sizes.md.";
        assert!(large.ends_with(page), "{large}");
        let removed = "See removing a registration (docs/register.md#remove).";
        assert_eq!(said("RegistrationRemoved").unwrap(), removed);
        assert_eq!(said("Accepted"), None);
        assert_eq!(said("NoSuchReason"), None);
    }

    #[test]
    fn what_to_do_is_more_than_to_wait_and_fits_below_a_check() {
        for reason in Reason::ALL {
            let said = reason.remediation().unwrap_or_default();
            assert_ne!(said, "Retried.", "{reason}");
            assert!(said.len() <= 320, "{reason}: {} bytes: {said}", said.len());
        }
    }
}
