//! Machine sets, one for each template that a machine deployment has had, and what follows from a
//! new one: another revision, and an end of the Machines of older ones.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

/// The annotation of machine deployments and machine sets.
const REVISION: &str = "machinedeployment.clusters.k8s.io/revision";
const MACHINE: (&str, &str) = ("Machine", "machines");
const MACHINE_SET: (&str, &str) = ("MachineSet", "machinesets");
const MACHINE_DEPLOYMENT: (&str, &str) = ("MachineDeployment", "machinedeployments");

/// Brings everything in a namespace in line with its machine deployments.
///
/// # Errors
///
/// When the API server cannot be asked, or refuses a write; the next call goes on.
pub(super) async fn reconcile(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let all = ListParams::default();
    for deployment in objects(client, namespace, MACHINE_DEPLOYMENT)
        .list(&all)
        .await?
    {
        let newest = newest_set(client, &deployment).await?;
        let older = sets_of(client, &deployment).await?;
        let older: Vec<_> = older.iter().filter(|it| it.uid() != newest.uid()).collect();
        for machine in machines(client, namespace).list(&all).await? {
            if older.iter().any(|it| is_owned_by(&machine, it)) {
                end(client, &machine).await?;
            } else {
                refer_to_node(client, &machine).await?;
            }
        }
    }
    Ok(())
}

/// The Machines of a namespace.
pub(super) fn machines(client: &Client, namespace: &str) -> Api<DynamicObject> {
    objects(client, namespace, MACHINE)
}

/// Creates a Machine of the newest set, and returns its revision.
///
/// # Errors
///
/// When there is no such machine deployment, or the API server refuses a write.
pub(super) async fn create_machine(
    client: &Client,
    (namespace, deployment): (&str, &str),
    name: &str,
) -> anyhow::Result<String> {
    let deployments = objects(client, namespace, MACHINE_DEPLOYMENT);
    let deployment = deployments.get(deployment).await;
    let deployment = deployment.context("reading the machine deployment")?;
    let set = newest_set(client, &deployment).await?;
    create(client, (MACHINE, name), &set, json!({})).await?;
    Ok(revision(&set).to_string())
}

/// The set of the machine deployment's template. A template that no set has makes a revision.
async fn newest_set(client: &Client, deployment: &DynamicObject) -> anyhow::Result<DynamicObject> {
    let sets = sets_of(client, deployment).await?;
    let newest = sets.into_iter().max_by_key(revision);
    let set = match newest {
        Some(set) if template(&set) == template(deployment) => set,
        older => {
            let next = older.map_or_else(|| revision(deployment).max(1), |it| revision(&it) + 1);
            let name = format!("{}-{next}", deployment.name_any());
            let fields = json!({
                "metadata": { "annotations": { REVISION: next.to_string() } },
                "spec": { "template": template(deployment) },
            });
            create(client, (MACHINE_SET, &name), deployment, fields).await?
        }
    };
    if revision(&set) != revision(deployment) {
        let raised = revision(&set).to_string();
        let patch = json!({ "metadata": { "annotations": { REVISION: raised } } });
        let namespace = deployment.namespace().unwrap_or_default();
        objects(client, &namespace, MACHINE_DEPLOYMENT)
            .patch(
                &deployment.name_any(),
                &PatchParams::default(),
                &Patch::Merge(&patch),
            )
            .await
            .context("raising the revision")?;
    }
    Ok(set)
}

async fn sets_of(
    client: &Client,
    deployment: &DynamicObject,
) -> anyhow::Result<Vec<DynamicObject>> {
    let namespace = deployment.namespace().unwrap_or_default();
    let sets = objects(client, &namespace, MACHINE_SET);
    let mut sets = sets.list(&ListParams::default()).await?.items;
    sets.retain(|it| is_owned_by(it, deployment));
    Ok(sets)
}

/// Deletes the node and the Machine of an older template.
async fn end(client: &Client, machine: &DynamicObject) -> anyhow::Result<()> {
    let (name, now) = (machine.name_any(), DeleteParams::default());
    let nodes: Api<Node> = Api::all(client.clone());
    if nodes.get_opt(&name).await?.is_some() {
        nodes.delete(&name, &now).await.context("deleting a node")?;
    }
    let namespace = machine.namespace().unwrap_or_default();
    machines(client, &namespace)
        .delete(&name, &now)
        .await
        .context("deleting a Machine")?;
    Ok(())
}

/// Sets a Machine's reference once there is a node. The machines of this provider are nodes of
/// their own names.
async fn refer_to_node(client: &Client, machine: &DynamicObject) -> anyhow::Result<()> {
    let name = machine.name_any();
    let nodes: Api<Node> = Api::all(client.clone());
    if machine.data.pointer("/status/nodeRef").is_some() {
        return Ok(());
    }
    let Some(node) = nodes.get_opt(&name).await? else {
        return Ok(());
    };
    let reference = json!({ "kind": "Node", "name": name, "uid": node.metadata.uid });
    let patch = json!({ "status": { "nodeRef": reference } });
    let namespace = machine.namespace().unwrap_or_default();
    machines(client, &namespace)
        .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .context("setting a Machine's node")?;
    Ok(())
}

/// An object that belongs to another one.
async fn create(
    client: &Client,
    (kind, name): ((&str, &str), &str),
    owner: &DynamicObject,
    fields: Value,
) -> anyhow::Result<DynamicObject> {
    let types = owner.types.as_ref().context("the owner was read alone")?;
    let mut object = fields;
    json_patch::merge(
        &mut object,
        &json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": kind.0,
            "metadata": { "name": name, "ownerReferences": [{
                "apiVersion": types.api_version, "kind": types.kind, "controller": true,
                "name": owner.metadata.name, "uid": owner.metadata.uid,
            }] },
        }),
    );
    let namespace = owner.namespace().unwrap_or_default();
    let params = PatchParams::apply("machine-controller").force();
    objects(client, &namespace, kind)
        .patch(name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("creating {} {name}", kind.0))
}

fn is_owned_by(object: &DynamicObject, owner: &DynamicObject) -> bool {
    let uid = owner.uid().unwrap_or_default();
    object.owner_references().iter().any(|it| it.uid == uid)
}

fn template(object: &DynamicObject) -> Option<&Value> {
    object.data.pointer("/spec/template")
}

fn revision(object: &DynamicObject) -> u64 {
    let annotation = object.annotations().get(REVISION);
    annotation.and_then(|it| it.parse().ok()).unwrap_or(0)
}

fn objects(client: &Client, namespace: &str, (kind, plural): (&str, &str)) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("cluster.k8s.io", "v1alpha1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::namespaced_with(client.clone(), namespace, &resource)
}
