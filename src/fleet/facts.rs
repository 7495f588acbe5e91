//! Reads what nodes need to know of their cluster: the API server, its certificate authority, and
//! the token that they fetch their provisioning Secret with.

use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, api::ListParams};
use serde::Deserialize;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::api::names::{CLOUD_INIT_SETTINGS, GETTER_TOKEN, KUBECONFIG_KEY};
use crate::tenant::{facts::ClusterFacts, secret_text::SecretText};

/// Why the facts could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// The getter's token is not there yet.
    #[error("Secret cloud-init-settings/cloud-init-getter-token has no token yet")]
    TokenPending,
    /// There is neither a usable cluster-info nor a ready endpoint.
    #[error(
        "neither ConfigMap kube-public/cluster-info nor a ready endpoint of Service \
         default/kubernetes tells the API server's address"
    )]
    NoApiServer,
    /// A call failed.
    #[error("cannot read {what}")]
    Call {
        /// What was read.
        what: &'static str,
        /// Why it failed.
        source: kube::Error,
    },
}

/// Reads the facts. An endpoint that is in use stays while it is ready.
pub async fn read(
    client: &Client,
    kubeconfig_ca: &[u8],
    in_use: Option<&str>,
) -> Result<ClusterFacts, FactsError> {
    let fetch_token = fetch_token(client).await?;
    if let Some((api_server, certificate_authority_data)) = cluster_info(client).await {
        return Ok(ClusterFacts {
            api_server,
            certificate_authority_data,
            fetch_token,
        });
    }
    let ready = ready_endpoints(client).await?;
    let api_server = in_use
        .map(str::to_owned)
        .filter(|in_use| ready.contains(in_use))
        .or_else(|| ready.into_iter().next())
        .ok_or(FactsError::NoApiServer)?;
    Ok(ClusterFacts {
        api_server,
        certificate_authority_data: STANDARD.encode(kubeconfig_ca),
        fetch_token,
    })
}

async fn fetch_token(client: &Client) -> Result<SecretText, FactsError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let secret = secrets
        .get_opt(GETTER_TOKEN)
        .await
        .map_err(|source| FactsError::Call {
            what: "the getter's token",
            source,
        })?;
    secret
        .and_then(|mut secret| secret.data.as_mut()?.remove("token"))
        .and_then(|token| String::from_utf8(token.0).ok())
        .filter(|token| !token.is_empty())
        .map(SecretText::new)
        .ok_or(FactsError::TokenPending)
}

/// The part of cluster-info's kubeconfig that counts.
#[derive(Deserialize)]
struct ClusterInfo {
    clusters: Vec<NamedCluster>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    #[serde(default)]
    certificate_authority_data: String,
}

/// Any failure means that the endpoints tell: many clusters have no cluster-info.
async fn cluster_info(client: &Client) -> Option<(String, String)> {
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let config_map = config_maps.get("cluster-info").await.ok()?;
    let kubeconfig = config_map.data?.remove(KUBECONFIG_KEY)?;
    let info: ClusterInfo = serde_saphyr::from_str(&kubeconfig).ok()?;
    let cluster = info.clusters.into_iter().next()?.cluster;
    cluster
        .server
        .starts_with("https://")
        .then_some((cluster.server, cluster.certificate_authority_data))
}

/// The API servers that are ready, as URLs, in the order of the slices.
async fn ready_endpoints(client: &Client) -> Result<Vec<String>, FactsError> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let of_kubernetes = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    let slices = slices
        .list(&of_kubernetes)
        .await
        .map_err(|source| FactsError::Call {
            what: "the endpoints of the API server",
            source,
        })?;
    Ok(slices.items.iter().flat_map(ready_in).collect())
}

fn ready_in(slice: &EndpointSlice) -> Vec<String> {
    let port = slice
        .ports
        .iter()
        .flatten()
        .find(|port| port.name.as_deref() == Some("https"))
        .and_then(|port| port.port);
    let Some(port) = port else { return Vec::new() };
    slice
        .endpoints
        .iter()
        .flatten()
        .filter(|endpoint| {
            endpoint
                .conditions
                .as_ref()
                .and_then(|conditions| conditions.ready)
                == Some(true)
        })
        .flat_map(|endpoint| &endpoint.addresses)
        .filter_map(|address| address.parse().ok())
        .map(|address| {
            format!(
                "https://{}",
                std::net::SocketAddr::new(address, port_number(port))
            )
        })
        .collect()
}

/// A port that does not fit is the API server's mistake; zero makes the URL fail visibly.
fn port_number(port: i32) -> u16 {
    u16::try_from(port).unwrap_or_default()
}
