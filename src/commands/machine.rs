//! Shows how far one machine has come on its way to a node, from what the worker cluster's API
//! server knows and the user may read. Writes nothing, and does not contact the manager.

mod progress;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_openapi::api::{
    certificates::v1::CertificateSigningRequest,
    core::v1::{Node as NodeObject, Secret},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, ObjectMeta, PartialObjectMeta},
    core::{DeserializeGuard, GroupVersionKind},
};
use serde_json::Value;

use self::progress::{CertificateRequest, Documents, Known, Machine, Node, Observations};
use super::cluster_client::{ClusterClient, WorkerKubeconfigSource};
use crate::api::names::{
    BEHIND_DOCUMENT, CLOUD_INIT_SETTINGS, DOCUMENT_APPLIED, DerivedNames, FETCHER_TOKEN,
    MADE_FOR_REVISION, REVISION,
};
use crate::client::pages;
use crate::telemetry::chain::chain;

pub use self::progress::{Progress, State, Step};

/// The label of a token's Secret that Kubernetes sets to the day on which the token was last used.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// The machine to look up.
#[derive(Clone, Debug)]
pub struct Question {
    /// Access to its worker cluster.
    pub worker: WorkerKubeconfigSource,
    /// The machine's name.
    pub name: String,
    /// The namespace of machines.
    pub namespace: String,
    /// The name of the node, if it is not the machine's and the Machine does not contain it.
    pub node: Option<String>,
    /// The name of the machine deployment, if there is no Machine from which to look it up.
    pub machine_deployment: Option<String>,
}

/// Collects the steps of a machine. Observations that the user may not read are unknown.
///
/// # Errors
///
/// Returns an error if the worker cluster's kubeconfig cannot be used, or if its API server does
/// not answer.
pub async fn steps(question: &Question) -> anyhow::Result<Progress> {
    let client = ClusterClient::worker(&question.worker).await?.client;
    let version = client.apiserver_version().await;
    version.context("the worker cluster's API server does not answer")?;
    let found = machine(&client, question).await;
    if matches!(found, Known::Is(None)) && question.machine_deployment.is_none() {
        bail!(
            "there is no Machine {} in {}: kubectl get machines -n {} lists them; if its node has \
             none, add --machine-deployment",
            question.name,
            question.namespace,
            question.namespace
        );
    }
    let deployment = deployment(&client, question, &found).await;
    let own_node = match &found {
        Known::Is(Some(machine)) => text(machine, "/status/nodeRef/name"),
        _ => None,
    };
    let node_name = question.node.clone().or(own_node);
    let node_name = node_name.unwrap_or_else(|| question.name.clone());
    let (documents, fetched) = match &deployment {
        Known::Is(deployment) => {
            let names = DerivedNames::new(&question.namespace, deployment);
            futures::join!(
                documents(&client, question, deployment, &names),
                last_used(&client, &names),
            )
        }
        Known::Unknown(why) => (Known::Unknown(why.clone()), Known::Unknown(why.clone())),
    };
    let (requests, node) = futures::join!(requests(&client), node(&client, &node_name));
    let of = |signer: &str| match &requests {
        Known::Is(requests) => Known::Is(
            requests
                .iter()
                .filter(|it| it.spec.signer_name == signer && is_for(it, &node_name))
                .map(certificate_request)
                .collect(),
        ),
        Known::Unknown(why) => Known::Unknown(why.clone()),
    };
    let machine = match found {
        Known::Is(found) => Known::Is(found.map(|object| Machine {
            created: created(&object.metadata),
            error: text(&object, "/status/errorMessage"),
        })),
        Known::Unknown(why) => Known::Unknown(why),
    };
    Ok(progress::progress(&Observations {
        namespace: question.namespace.clone(),
        name: question.name.clone(),
        machine,
        documents,
        fetched,
        client: of(CLIENT_SIGNER),
        serving: of(SERVING_SIGNER),
        node,
    }))
}

/// Converts an answer. That an object does not exist is known, too.
fn answered<T>(answer: kube::Result<Option<T>>) -> Known<Option<T>> {
    match answer {
        Ok(found) => Known::Is(found),
        Err(error) => Known::Unknown(chain(&error).to_string()),
    }
}

fn kind(kind: &str, plural: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk("cluster.k8s.io", "v1alpha1", kind);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

fn objects(client: &Client, question: &Question, resource: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &question.namespace, resource)
}

async fn machine(client: &Client, question: &Question) -> Known<Option<DynamicObject>> {
    let machines = objects(client, question, &kind("Machine", "machines"));
    answered(machines.get_opt(&question.name).await)
}

/// Returns the name of the machine deployment that a Machine belongs to.
async fn deployment(
    client: &Client,
    question: &Question,
    machine: &Known<Option<DynamicObject>>,
) -> Known<String> {
    if let Some(named) = &question.machine_deployment {
        return Known::Is(named.clone());
    }
    let set = match machine {
        Known::Is(Some(machine)) => owner(&machine.metadata, "MachineSet"),
        Known::Is(None) => None,
        Known::Unknown(why) => {
            let why = format!("the Machine cannot be read ({why}): add --machine-deployment");
            return Known::Unknown(why);
        }
    };
    let Some(set) = set else {
        let why = "no Machine names its machine deployment: add --machine-deployment";
        return Known::Unknown(why.to_owned());
    };
    let sets = objects(client, question, &kind("MachineSet", "machinesets"));
    match answered(sets.get_metadata_opt(&set).await) {
        Known::Unknown(why) => Known::Unknown(why),
        Known::Is(found) => {
            let owner = found.and_then(|set| owner(&set.metadata, "MachineDeployment"));
            owner.map_or_else(
                || {
                    let why = "no machine deployment owns its MachineSet";
                    Known::Unknown(format!("{why} {set}: add --machine-deployment"))
                },
                Known::Is,
            )
        }
    }
}

fn text(object: &DynamicObject, pointer: &str) -> Option<String> {
    let found = object.data.pointer(pointer).and_then(Value::as_str);
    found.map(str::to_owned)
}

fn owner(metadata: &ObjectMeta, kind: &str) -> Option<String> {
    let owners = metadata.owner_references.iter().flatten();
    let mut of_kind = owners.filter(|it| it.kind == kind);
    of_kind.next().map(|it| it.name.clone())
}

async fn documents(
    client: &Client,
    question: &Question,
    deployment: &str,
    names: &DerivedNames,
) -> Known<Documents> {
    let namespace = &question.namespace;
    let resource = kind("MachineDeployment", "machinedeployments");
    let deployments = objects(client, question, &resource);
    let found = match answered(deployments.get_metadata_opt(deployment).await) {
        Known::Is(Some(found)) => found,
        Known::Is(None) => {
            return Known::Unknown(format!(
                "there is no machine deployment {namespace}/{deployment}"
            ));
        }
        Known::Unknown(why) => return Known::Unknown(why),
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let mut documents = Documents {
        deployment: format!("{namespace}/{deployment}"),
        revision: annotation(&found, REVISION).unwrap_or_default(),
        ..Documents::default()
    };
    for name in [
        &names.bootstrap,
        &names.provisioning,
        &names.kubelet_kubeconfig,
    ] {
        match answered(secrets.get_metadata_opt(name).await) {
            Known::Is(Some(secret)) => {
                documents
                    .made_for
                    .extend(annotation(&secret, MADE_FOR_REVISION));
            }
            Known::Is(None) => documents.missing.push(name.clone()),
            Known::Unknown(why) => return Known::Unknown(why),
        }
    }
    Known::Is(documents)
}

fn annotation<K>(object: &PartialObjectMeta<K>, name: &str) -> Option<String> {
    let annotations = object.metadata.annotations.as_ref();
    annotations.and_then(|it| it.get(name)).cloned()
}

/// Returns the day on which the token for fetching documents was last used.
async fn last_used(client: &Client, names: &DerivedNames) -> Known<Option<String>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    for name in [names.fetcher_token.as_str(), FETCHER_TOKEN] {
        match answered(secrets.get_metadata_opt(name).await) {
            Known::Is(Some(secret)) => return Known::Is(secret.labels().get(LAST_USED).cloned()),
            Known::Is(None) => {}
            Known::Unknown(why) => return Known::Unknown(why),
        }
    }
    Known::Unknown("there is no token to fetch it with".to_owned())
}

async fn requests(client: &Client) -> Known<Vec<CertificateSigningRequest>> {
    let requests: Api<DeserializeGuard<CertificateSigningRequest>> = Api::all(client.clone());
    match pages::all(&requests, ListParams::default()).await {
        Ok(list) => Known::Is(list.objects),
        Err(error) => Known::Unknown(chain(&error).to_string()),
    }
}

/// Returns true if a request is for the certificate of this node. The requesting user does not show
/// it: with a bootstrap token, all machines are the same user.
fn is_for(request: &CertificateSigningRequest, node: &str) -> bool {
    let user = format!("system:node:{node}");
    names(&request.spec.request.0, &user)
}

/// Returns true if a request in PEM contains exactly this name.
fn names(pem: &[u8], name: &str) -> bool {
    use rustls::pki_types::{CertificateSigningRequestDer, pem::PemObject as _};
    let Ok(der) = CertificateSigningRequestDer::from_pem_slice(pem) else {
        return false;
    };
    // DER encodes a short text after its length.
    let Ok(length) = u8::try_from(name.len()) else {
        return false;
    };
    let mut text = vec![length];
    text.extend(name.as_bytes());
    memchr::memmem::find(&der, &text).is_some()
}

fn certificate_request(request: &CertificateSigningRequest) -> CertificateRequest {
    let status = request.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let refused = conditions
        .iter()
        .find(|it| it.type_ == "Denied" || it.type_ == "Failed");
    CertificateRequest {
        name: request.name_any(),
        asked: created(&request.metadata),
        approved: conditions.iter().any(|it| it.type_ == "Approved"),
        refused: refused.map(|it| {
            let message = it.message.as_deref().unwrap_or("no message");
            format!("{}: {message}", it.type_)
        }),
        issued: status.certificate.is_some(),
    }
}

async fn node(client: &Client, name: &str) -> Known<Option<Node>> {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    let object = match answered(nodes.get_opt(name).await) {
        Known::Is(Some(object)) => object,
        Known::Is(None) => return Known::Is(None),
        Known::Unknown(why) => return Known::Unknown(why),
    };
    let created = created(&object.metadata);
    let status = object.status.unwrap_or_default();
    let info = status.node_info.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let condition = |name: &str| {
        let found = conditions.iter().find(|it| it.type_ == name)?;
        let message = found.message.clone().unwrap_or_default();
        let since = found.last_transition_time.as_ref().map(at);
        Some((found.status.clone(), since, message))
    };
    Known::Is(Some(Node {
        created,
        system: format!("{}, kubelet {}", info.os_image, info.kubelet_version),
        ready: condition("Ready"),
        applied: condition(DOCUMENT_APPLIED),
        is_behind: conditions.iter().any(|it| {
            it.type_ == DOCUMENT_APPLIED && it.reason.as_deref() == Some(BEHIND_DOCUMENT)
        }),
    }))
}

fn created(metadata: &ObjectMeta) -> Option<String> {
    metadata.creation_timestamp.as_ref().map(at)
}

fn at(time: &Time) -> String {
    let time: Timestamp = time.0;
    time.to_string()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::names;

    #[test]
    fn a_request_names_its_own_node_and_none_whose_name_begins_so() {
        let mut params = CertificateParams::default();
        let name = &mut params.distinguished_name;
        name.push(DnType::OrganizationName, "system:nodes");
        name.push(DnType::CommonName, "system:node:one-10");
        let request = params.serialize_request(&KeyPair::generate().unwrap());
        let pem = request.unwrap().pem().unwrap();
        assert!(names(pem.as_bytes(), "system:node:one-10"));
        assert!(!names(pem.as_bytes(), "system:node:one-1"));
        assert!(!names(b"no request", "system:node:one-10"));
    }
}
