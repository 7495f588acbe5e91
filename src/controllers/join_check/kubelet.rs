//! What a kubelet does with its bootstrap token: it requests a certificate, waits for it, and
//! somebody approves the request.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString,
    api::{
        authorization::v1::{
            ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
        },
        certificates::v1::{
            CertificateSigningRequest, CertificateSigningRequestCondition,
            CertificateSigningRequestSpec,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
    core::DeserializeGuard,
};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use super::{Outcome, of_error};
use crate::api::reason::Reason;
use crate::client::pages::Pages;
use crate::plan::bootstrap::AUTH_GROUPS;
use crate::telemetry::chain::chain;

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The group of kubelets that have a certificate.
const NODES: &str = "system:nodes";
/// No node has this name: machine-controller names nodes after machines.
const NODE: &str = "osm-join-check";
/// An approver acts within a second. A request that waits for longer has none.
const APPROVED_WITHIN: SignedDuration = SignedDuration::from_mins(5);
/// What to do about a machine's request that nobody approves, and about a node's.
const NO_APPROVER: &str = "does kube-controller-manager run with its controller csrapproving?";
const NO_RENEWAL: &str = "a node cannot renew its certificate, and is lost when that ends: bind \
                          ClusterRole system:certificates.k8s.io:certificatesigningrequests:\
                          selfnodeclient to the group system:nodes";
/// How many requests are looked at. The API server deletes them after an hour, or a day.
const REQUESTS: u32 = 100;

/// Does what a kubelet does.
pub(super) async fn joins(client: Client, now: Timestamp) -> Outcome {
    tries(client, now).await.err().unwrap_or(Outcome::Can)
}

/// Fails with the first outcome that is not well.
async fn tries(client: Client, now: Timestamp) -> Result<(), Outcome> {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let untried = request(&requests).await?;
    for verb in ["get", "watch"] {
        if !may(&client, (verb, "")).await? {
            return Err(forbidden(verb, ""));
        }
    }
    let recent = recent(client.clone()).await.map_err(|error| {
        let what = "a kubelet cannot read its request for a certificate";
        of_error(&error, (Reason::JoinForbidden, what))
    })?;
    let of_machines: Vec<_> = of(AUTH_GROUPS, &recent).collect();
    let was_approved = of_machines.iter().any(|it| is_approved(it));
    if !was_approved && !may(&client, ("create", "nodeclient")).await? {
        let why = "nobody approves the certificates of machines: bind ClusterRole \
                   system:certificates.k8s.io:certificatesigningrequests:nodeclient to the group \
                   of their bootstrap tokens";
        return Err(Outcome::Cannot(Reason::ApprovalForbidden, why.to_owned()));
    }
    let of_nodes: Vec<_> = of(NODES, &recent).collect();
    for (requests, advice) in [(of_machines, NO_APPROVER), (of_nodes, NO_RENEWAL)] {
        if let Some((created, name)) = waiting(&requests, now) {
            let why = format!(
                "CertificateSigningRequest {name} has waited for approval since {created}: {advice}"
            );
            return Err(Outcome::Unknown(Reason::ApprovalPending, why, None));
        }
    }
    match untried {
        Some(why) => Err(Outcome::Unknown(Reason::NotChecked, why, None)),
        None => Ok(()),
    }
}

/// Returns the oldest request that has waited for too long, if none was approved after it.
fn waiting<'a>(
    requests: &[&'a CertificateSigningRequest],
    now: Timestamp,
) -> Option<(Timestamp, &'a str)> {
    let approved = requests.iter().filter(|it| is_approved(it));
    let newest = approved.filter_map(|it| created(it)).max();
    let waiting = requests.iter().filter(|it| conditions(it).is_empty());
    let waiting = waiting.filter_map(|it| Some((created(it)?, it.metadata.name.as_deref()?)));
    let stuck = waiting.filter(|(created, _)| {
        newest.is_none_or(|newest| newest < *created)
            && now.duration_since(*created) > APPROVED_WITHIN
    });
    stuck.min()
}

/// Returns the requests for certificates of kubelets, or none if there are too many to read all.
async fn recent(client: Client) -> Result<Vec<CertificateSigningRequest>, kube::Error> {
    let requests: Api<DeserializeGuard<CertificateSigningRequest>> = Api::all(client);
    let of_kubelets = ListParams::default().fields(&format!("spec.signerName={SIGNER}"));
    let mut pages = Pages::of(of_kubelets, REQUESTS);
    let page = pages.next(&requests).await?;
    let found = page.map_or_else(Vec::new, |page| page.objects);
    if !pages.is_complete() {
        return Ok(Vec::new());
    }
    Ok(found)
}

/// Returns the requests that members of a group made.
fn of<'a>(
    group: &str,
    requests: &'a [CertificateSigningRequest],
) -> impl Iterator<Item = &'a CertificateSigningRequest> {
    requests.iter().filter(move |it| {
        let mut groups = it.spec.groups.iter().flatten();
        groups.any(|found| found == group)
    })
}

fn conditions(request: &CertificateSigningRequest) -> &[CertificateSigningRequestCondition] {
    let status = request.status.as_ref();
    let conditions = status.and_then(|it| it.conditions.as_deref());
    conditions.unwrap_or_default()
}

fn is_approved(request: &CertificateSigningRequest) -> bool {
    let mut conditions = conditions(request).iter();
    conditions.any(|it| it.type_ == "Approved")
}

fn created(request: &CertificateSigningRequest) -> Option<Timestamp> {
    Some(request.metadata.creation_timestamp.as_ref()?.0)
}

/// Requests a certificate, which the API server checks and does not keep. Returns a sentence if
/// that could not be tried.
async fn request(requests: &Api<CertificateSigningRequest>) -> Result<Option<String>, Outcome> {
    let request = match a_request() {
        Ok(request) => request,
        Err(error) => return Ok(Some(format!("no key could be made: {error}"))),
    };
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let Err(error) = requests.create(&dry_run, &request).await else {
        return Ok(None);
    };
    let kube::Error::Api(status) = &error else {
        let what = "a machine cannot request its certificate";
        return Err(of_error(&error, (Reason::JoinForbidden, what)));
    };
    match status.code {
        401 => {
            let what = "a kubelet cannot authenticate with its bootstrap token";
            Err(of_error(&error, (Reason::BootstrapTokenRefused, what)))
        }
        // What a webhook refuses itself has no reason.
        400 if status.reason == "BadRequest" => Ok(Some(format!(
            "whether a machine may request its certificate was not tried: {}",
            chain(&error)
        ))),
        403 => Err(forbidden("create", &format!(": {}", chain(&error)))),
        400..=499 if status.code != 429 && status.code != 404 => {
            let why = format!(
                "a machine's request for a certificate is refused: {}",
                chain(&error)
            );
            Err(Outcome::Cannot(Reason::JoinForbidden, why))
        }
        _ => {
            let what = "a machine cannot request its certificate";
            Err(of_error(&error, (Reason::JoinForbidden, what)))
        }
    }
}

fn forbidden(verb: &str, answer: &str) -> Outcome {
    let why = format!(
        "a kubelet with a bootstrap token may not {verb} CertificateSigningRequests: bind \
         ClusterRole system:node-bootstrapper to its group{answer}"
    );
    Outcome::Cannot(Reason::JoinForbidden, why)
}

/// A kubelet's request, with a key that is not kept.
fn a_request() -> Result<CertificateSigningRequest, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let name = &mut params.distinguished_name;
    name.push(DnType::OrganizationName, NODES);
    name.push(DnType::CommonName, format!("system:node:{NODE}"));
    let pem = params.serialize_request(&key)?.pem()?;
    Ok(CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some(format!("{NODE}-")),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(
                ["digital signature", "client auth"]
                    .map(str::to_owned)
                    .to_vec(),
            ),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    })
}

/// Asks, as the kubelet, for a right on requests for certificates.
async fn may(client: &Client, (verb, subresource): (&str, &str)) -> Result<bool, Outcome> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some("certificates.k8s.io".to_owned()),
                resource: Some("certificatesigningrequests".to_owned()),
                subresource: Some(subresource.to_owned()).filter(|it| !it.is_empty()),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    match reviews.create(&PostParams::default(), &review).await {
        Ok(answer) => Ok(answer.status.is_some_and(|it| it.allowed)),
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            let why = "the API server does not tell kubelets what they may do".to_owned();
            Err(Outcome::Unknown(Reason::NotChecked, why, None))
        }
        Err(error) => {
            let what = "a kubelet cannot ask for its rights";
            Err(of_error(&error, (Reason::JoinForbidden, what)))
        }
    }
}
