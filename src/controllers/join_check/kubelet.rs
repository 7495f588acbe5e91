//! What a kubelet does with its bootstrap token: it requests a certificate, waits for it, and
//! somebody approves the request.

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        authorization::v1::{
            ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
        },
        certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use super::{Outcome, approval, of_error};
use crate::api::reason::Reason;
use crate::telemetry::chain::chain;

/// No node has this name: machine-controller names nodes after machines.
const NODE: &str = "osm-join-check";

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
    let seen = approval::seen(client.clone()).await.map_err(|error| {
        let what = "a kubelet cannot read its request for a certificate";
        of_error(&error, (Reason::JoinForbidden, what))
    })?;
    if !seen.was_approved() && !may(&client, ("create", "nodeclient")).await? {
        return Err(seen.nobody_approves());
    }
    if let Some(waits) = seen.waits(now) {
        return Err(Outcome::Unknown(Reason::ApprovalPending, waits, None));
    }
    match untried {
        Some(why) => Err(Outcome::Unknown(Reason::NotChecked, why, None)),
        None => Ok(()),
    }
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
    name.push(DnType::OrganizationName, approval::NODES);
    name.push(DnType::CommonName, format!("system:node:{NODE}"));
    let pem = params.serialize_request(&key)?.pem()?;
    Ok(CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some(format!("{NODE}-")),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: approval::SIGNER.to_owned(),
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
