//! Whether somebody approves what kubelets request: for machines, and for nodes that renew theirs.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{Api, Client, ResourceExt, api::ListParams, core::DeserializeGuard};

use super::Outcome;
use crate::api::reason::Reason;
use crate::client::pages::Pages;
use crate::plan::bootstrap::AUTH_GROUPS;

pub(super) const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The group of kubelets that have a certificate.
pub(super) const NODES: &str = "system:nodes";

/// An approver acts within a second. A request that waits for longer has none.
const APPROVED_WITHIN: SignedDuration = SignedDuration::from_mins(5);
/// A node makes another request after a quarter of an hour (client-go 0.37). One that is older and
/// the newest is of a node that has gone.
const REPEATED_WITHIN: SignedDuration = SignedDuration::from_mins(30);
/// How many requests are read. kube-controller-manager deletes them after an hour, or a day if they
/// wait.
const PAGES: u32 = 10;
const PAGE: u32 = 100;

const NO_APPROVER: &str = "does kube-controller-manager run with its controller csrapproving?";
const NO_RENEWAL: &str = "does kube-controller-manager run with its controller csrapproving, and is \
                          ClusterRole system:certificates.k8s.io:certificatesigningrequests:\
                          selfnodeclient bound to the group system:nodes? A node is lost when its \
                          certificate ends";

/// The requests that exist.
pub(super) struct Seen {
    requests: Vec<Request>,
    is_all: bool,
}

/// What a request says about approvers.
struct Request {
    name: String,
    created: Timestamp,
    /// True for that of a node, and false for that of a machine.
    renews: bool,
    is_approved: bool,
    /// True if it is neither approved nor denied, and did not fail.
    waits: bool,
}

/// Reads the requests of kubelets.
pub(super) async fn seen(client: Client) -> Result<Seen, kube::Error> {
    let api: Api<DeserializeGuard<CertificateSigningRequest>> = Api::all(client);
    let of_kubelets = ListParams::default().fields(&format!("spec.signerName={SIGNER}"));
    let mut pages = Pages::of(of_kubelets, PAGE);
    let mut requests = Vec::new();
    for _ in 0..PAGES {
        let Some(page) = pages.next(&api).await? else {
            break;
        };
        requests.extend(page.objects.iter().filter_map(Request::read));
    }
    Ok(Seen {
        requests,
        is_all: pages.is_complete(),
    })
}

impl Request {
    /// Returns what counts, of a request of a machine or a node.
    fn read(found: &CertificateSigningRequest) -> Option<Self> {
        let is_of = |group: &str| found.spec.groups.iter().flatten().any(|it| it == group);
        if !is_of(AUTH_GROUPS) && !is_of(NODES) {
            return None;
        }
        let status = found.status.as_ref();
        let conditions = status.and_then(|it| it.conditions.as_deref());
        let conditions = conditions.unwrap_or_default();
        Some(Self {
            name: found.name_any(),
            created: found.metadata.creation_timestamp.as_ref()?.0,
            renews: is_of(NODES),
            is_approved: conditions.iter().any(|it| it.type_ == "Approved"),
            waits: conditions.is_empty(),
        })
    }
}

impl Seen {
    /// Returns true if a machine's request was approved, by right or by another program.
    pub(super) fn was_approved(&self) -> bool {
        let mut machines = self.requests.iter().filter(|it| !it.renews);
        machines.any(|it| it.is_approved)
    }

    /// Returns the outcome where machines' requests are not approved by right, and none was.
    pub(super) fn nobody_approves(&self) -> Outcome {
        if !self.is_all {
            let most = PAGES * PAGE;
            let why = format!(
                "whether somebody approves machines' certificates is not known: kubelets have more \
                 than {most} CertificateSigningRequests"
            );
            return Outcome::Unknown(Reason::NotChecked, why, None);
        }
        let why = "nobody approves the certificates of machines: bind ClusterRole \
                   system:certificates.k8s.io:certificatesigningrequests:nodeclient to the group \
                   of their bootstrap tokens";
        Outcome::Cannot(Reason::ApprovalForbidden, why.to_owned())
    }

    /// Returns what is wrong if a request waits for too long, and none was approved after it. Of a
    /// part of the requests, that is not known.
    pub(super) fn waits(&self, now: Timestamp) -> Option<String> {
        if !self.is_all {
            return None;
        }
        let oldest = |renews: bool| {
            let of_kind = self.requests.iter().filter(move |it| it.renews == renews);
            let approved = of_kind.clone().filter(|it| it.is_approved);
            let newest = approved.map(|it| it.created).max();
            let waiting = of_kind.filter(move |it| {
                let age = now.duration_since(it.created);
                it.waits
                    && newest.is_none_or(|newest| newest < it.created)
                    && age > APPROVED_WITHIN
                    && (age < REPEATED_WITHIN || !renews)
            });
            waiting.min_by_key(|it| it.created)
        };
        let machine = oldest(false).map(|it| (it, NO_APPROVER));
        let (request, advice) = machine.or_else(|| Some((oldest(true)?, NO_RENEWAL)))?;
        let (name, created) = (&request.name, request.created);
        Some(format!(
            "CertificateSigningRequest {name} has waited for approval since {created}: {advice}"
        ))
    }
}
