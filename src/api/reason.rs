//! Why something is as it is: the reasons in conditions, in the entries of machine deployments, and
//! in Events, each with what to do about it. `docs/reasons.md` explains them in the same words.

use std::fmt;

/// Declares the reasons, each with what to do about it in Markdown; empty where there is nothing to
/// do.
macro_rules! reasons {
    ($($name:ident => $remediation:literal,)*) => {
        /// A reason: a word for programs, which users look up.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    Ready => "",
    Engaging => "",
    // Of Registered.
    Accepted => "",
    SettingsRestored => "Check the `spec`, and confirm it with the command in the message.",
    KubeconfigRefused => "Write what the message says.",
    PolicyUnknown =>
        "The message has the API server's answer. Grant `get namespaces`, see \
        [permissions](install.md#permissions).",
    NamespaceTaken => "Remove one of the two.",
    Paused => "",
    WorkerClusterUnreadable =>
        "`osm tenants` and `osm doctor` name it. Correct it, or use the version that wrote it. \
        Retried.",
    NoWorkerCluster =>
        "Retried. Does a WorkerCluster with the Secret's name refer to another Secret? May the \
        process create WorkerClusters?",
    RegistrationRemoved => "See [removing a registration](register.md#remove).",
    // Of ProfilesInstalled, NodeCredentials, MachineDeploymentsServed, MachinesCanJoin,
    // MachinesCurrent.
    NotEngaged => "See that condition.",
    // Of any but Registered and Adopted.
    NotRegistered => "See `Registered`.",
    // Of Connected.
    Healthy => "",
    Unreachable =>
        "Retried with a delay of up to 15 s, and after an hour of up to 60 s. Check the network, \
        the address and the certificate. Certificates and their signatures may use RSA of at \
        least 2048 bits, ECDSA on P-256 or P-384, or Ed25519. Not accepted, although kubectl \
        accepts them: ECDSA on P-521, an authority's certificate (`CA:TRUE`) as the server's \
        own, and a server's certificate as `certificate-authority-data`. Tenants can read the \
        message, so it says only `no TLS connection to the API server`, or what is wrong with \
        the server's certificate. The log has the exact cause, once until it changes: `cannot \
        reach a worker cluster`, with `registration` and `cause`, and `the worker cluster \
        answers again` at the end. Also an Event. On an established connection the message says \
        `no answer`.",
    ClocksDiffer =>
        "Let both machines synchronise their clocks. If the message is the same for all tenants, \
        the manager's clock is wrong.",
    EventsDelayed =>
        "The events are read with a delay. Find out who changes machine deployments or Secrets \
        in the worker cluster all the time. The first successful call a minute after the last \
        delay clears this reason.",
    WatchFailed =>
        "Remove the cause, for example by deleting objects. The reason is cleared a minute after \
        the last failure.",
    Degraded =>
        "After three such responses in a row, or one with `Retry-After`, the API server is \
        called again with the delays of `Unreachable`; no other calls are sent meanwhile. After \
        401 or 403, check the credential and `worker.yaml`.",
    Quarantined =>
        "Find out why the replicas crashed: `kubectl describe pod` (`OOMKilled`?) and the logs \
        of the previous container (`kubectl logs --previous`). If one tenant stays in \
        quarantine, compare its objects with those of others, and report the crash.",
    UpstreamRunning => "Scale it to zero. Retried.",
    LeftoverWebhooks => "Run the command in the message. Retried.",
    AdoptionForbidden => "Apply `worker-adoption.yaml`. Retried.",
    ProfilesCopied => "",
    SecretsKept => "",
    SecretsDiffer => "See `KeptAsFound`.",
    NothingToAdopt => "",
    // Of Claimed.
    Claimed => "",
    ClusterChanged =>
        "Put the old kubeconfig back, or, if you rebuilt the cluster, set \
        `spec.confirmedClusterUid` to the uid in the message.",
    ClaimedByOther =>
        "Remove the other registration with `Release` or `Purge`. If the holder no longer \
        exists, remove its annotation; if its management cluster was [restored as this \
        one](backup.md), set `--former-management-cluster`. Retried.",
    NotClaimed => "See `Ready`.",
    ClaimFailed => "Retried.",
    // Of Prepared.
    Prepared => "",
    PrerequisitesFailed => "Retried. The message has the API server's answer.",
    NamespaceTerminating =>
        "Retried. If it stays, `kubectl get namespace cloud-init-settings -o yaml` shows what \
        holds it.",
    RightsMissing =>
        "Run `kubectl apply -f manifests/rbac/worker.yaml` in the worker cluster. Retried: \
        everything comes back by itself, and only the fetcher's token is another one.",
    FetcherRefused =>
        "Run the command in the message, or apply `worker.yaml`, whose last rule for \
        `cloud-init-settings` allows the manager to correct it.",
    TokenPending => "Retried. If this persists: does the cluster run the token controller?",
    NoApiServer =>
        "Publish `kube-public/cluster-info`, or let the endpoints of Service `default/kubernetes` \
        become ready.",
    ClusterInfoInvalid =>
        "Correct `cluster-info`, or delete it: the endpoints of Service `default/kubernetes` \
        then take its place. Retried.",
    FactsFailed => "Retried.",
    MachineDeploymentNotServed => "Install machine-controller. Retried.",
    InventoryFailed => "Retried.",
    // Of ProfilesInstalled.
    Installed => "",
    Disabled => "",
    AwaitingTurn => "See [newer default profiles](roll-out.md#newer-default-profiles).",
    AwaitingApproval => "",
    RolloutPaused => "Find the tenants in the log, and check their entries.",
    InstallFailed => "Retried. The message has the API server's answer.",
    // Of NodeCredentials.
    PerMachineDeployment => "",
    Forbidden => "Apply `worker-node-credentials.yaml` to the worker cluster. Retried every 5 min.",
    SharedGetter => "",
    // Of MachineDeploymentsServed.
    AllServed => "",
    SomeNotServed => "Read their entries.",
    // Of MachinesCanJoin.
    CanJoin => "",
    AuthoritiesDiffer =>
        "Correct `apiServerOverride`, `kubernetesCABundle` or `cluster-info`, so that both have the \
        authority of the machines' API server.",
    CertificateRefused =>
        "Correct `apiServerOverride`, `kubernetesCABundle` or `cluster-info`. A registration \
        through a relay puts the relay's authority into documents: set `kubernetesCABundle` to \
        the cluster's.",
    FetchRefused =>
        "If the token itself is not accepted, delete the Secret that the message names: the \
        manager creates it again. Otherwise compare the ServiceAccount, Role and RoleBinding \
        `cloud-init-getter`. `Prepared` says what the manager may not correct.",
    BootstrapTokenRefused =>
        "Does the API server run with `--enable-bootstrap-token-auth`? Is the address that of \
        this cluster?",
    JoinForbidden =>
        "machine-controller's manifests bind the ClusterRole `system:node-bootstrapper` to the \
        group `system:bootstrappers:machine-controller:default-node-token`; \
        `tenants-example/worker-crds/kubelet-bootstrap.yaml` has the binding.",
    NotChecked => "If only the machines' network reaches the address, there is nothing to do.",
    // Of MachinesCurrent.
    MachinesCurrent => "",
    MachinesOutdated => "See [replacing machines](roll-out.md#replacing-machines).",
    MachinesHeldUp => "Check its machines.",
    MachineRolloutFailed => "Retried. The message has the API server's answer.",
    MachinesLeftAlone => "",
    // Of CredentialValid.
    Valid => "",
    ExpiresSoon => "Put a new kubeconfig into the Secret.",
    ExpiresVerySoon => "Put a new kubeconfig into the Secret now.",
    Expired => "Put a new kubeconfig into the Secret.",
    // Of Released.
    Released => "",
    Purged => "",
    NeverEngaged => "",
    Kept => "Register it again, and remove it with another `onRemoval`.",
    ReleaseFailed =>
        "The message has the API server's answer. If the reason stays, register the cluster \
        again, and remove it.",
    KubeconfigGone => "Register it again, wait for `Ready`, and remove it.",
    // Of a machine deployment.
    Current => "",
    KeptAsFound =>
        "To see our documents beforehand, use `osm render`. To switch to them, change the \
        revision.",
    AwaitingRevision => "",
    AwaitingProfile => "",
    AwaitingCluster => "See `Connected`.",
    AwaitingNodeCredentials => "If this persists: does the cluster run the token controller?",
    Unreadable => "Correct the machine deployment.",
    TooLarge =>
        "Shorten its annotations, labels and provider spec, or those of others; or raise \
        `--tenant-machine-deployments`.",
    Conflict => "",
    ProfileUnreadable =>
        "`kubectl get osp NAME -o yaml > p.yaml; osm lint p.yaml` names the field. Correct it \
        under another `spec.version`.",
    ProfileNotFound => "Create it, or name another in `k8c.io/operating-system-profile`.",
    ProfileQuotaExceeded =>
        "Remove some. For the quota, raise `--tenant-profiles` or `--tenant-profile-bytes`; for \
        the memory, see `OsmBudgetShort`. It is retried once a minute.",
    ProfileForbidden => "",
    ProfileBaseNotFound => "Create the base, or name another in `spec.extends`.",
    OverlayCycle => "Remove `spec.extends` from one of them.",
    OverlayTooDeep => "Extend a profile that is closer to the base.",
    OverlayMismatch => "Use that of the base, or extend another profile.",
    ProfileUnusable => "Correct the profile.",
    OperatingSystemProfileError => "",
    NoDefaultProfile => "Name one.",
    SettingsRefused => "",
    ProviderSpecRefused => "",
    NameTaken => "Rename one of the two.",
    NamesCollide => "Shorten its name, or use another namespace.",
    NameTooLong => "",
    TooManyMachineDeployments => "Remove some, or raise the limit.",
    RenderFailed => "",
    UserDataTooLarge =>
        "Shrink the file that the message names; see [user-data-sizes.md](user-data-sizes.md).",
    UserDataNearLimit => "Shrink it before it grows further.",
    RenderPanicked => "Report it.",
    RenderStopped =>
        "Simplify the templates; `osm render` shows their output. If the manager's CPU is \
        throttled, raise its limit.",
    RegistryCredentialsRefused => "Correct the Secret.",
    BootstrapAccountWithoutToken =>
        "Create the Secret, and name it in the ServiceAccount's `secrets`.",
    CallFailed => "The message has the call and the answer.",
    // Of an Event alone.
    DefaultProfileEdited => "",
    DefaultProfileReplaced => "",
    ReplacingMachines => "",
}

impl Reason {
    /// Returns the reason that a word stands for, if this version knows it.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.as_str() == word)
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

/// Returns a text without the marks of Markdown: a link is its text.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once("](") {
        text.push_str(before);
        rest = link.split_once(')').map_or("", |(_, after)| after);
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
        assert!(large.ends_with("see user-data-sizes.md."), "{large}");
        assert_eq!(said("Accepted"), None);
        assert_eq!(said("NoSuchReason"), None);
    }
}
