//! Reads what nodes need to know about their cluster: the API server, its certificate authority,
//! and the token with which they fetch their provisioning Secret.

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, api::ListParams, core::DeserializeGuard};
use serde::Deserialize;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::api::{
    names::{CLOUD_INIT_SETTINGS, FETCHER_TOKEN, KUBECONFIG_KEY},
    reason::Reason,
};
use crate::client::{pages::Pages, retry_delay::RetryDelay, token::TOKEN_BYTES_MAX};
use crate::tenant::{
    access::{self, AccessError},
    cluster_info::ClusterInfo,
    secret_text::SecretText,
};

/// How often cluster-info is read again while reading it is forbidden and the endpoints would
/// change what is in use. The waits grow from the first to the longest: 15 to 30 seconds in total.
const FORBIDDEN_RETRIES: usize = 4;
const FORBIDDEN_WAIT: Duration = Duration::from_secs(2);
const FORBIDDEN_WAIT_MAX: Duration = Duration::from_secs(16);

/// The longest kubeconfig in cluster-info. A certificate authority takes 2 KiB.
const KUBECONFIG_KIB_MAX: usize = 256;
/// The page size of endpoint slices. Each has at most 1,000 endpoints, and usually one.
const PAGE: u32 = 10;
/// The number of such pages: the API server has a slice for each family of addresses.
const PAGES: usize = 10;

/// What stands for the fetcher's token in a plan for a cluster that has not been served yet.
const NO_TOKEN: &str = "the token that the cluster will issue";

/// The reason why the cluster info could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ClusterInfoError {
    /// The fetcher's token does not exist yet.
    #[error("Secret cloud-init-settings/cloud-init-getter-token has no token yet")]
    TokenPending,
    /// The Secret for the fetcher's token does not exist. We create it, unless the cluster is its
    /// tenant's home.
    #[error(
        "Secret cloud-init-settings/cloud-init-getter-token does not exist; in a cluster that is \
         its tenant's home, the installer of its own operating-system-manager creates it"
    )]
    TokenMissing,
    /// There is neither a usable cluster-info nor a ready endpoint.
    #[error(
        "neither ConfigMap kube-public/cluster-info nor a ready endpoint of Service \
         default/kubernetes has the API server's address"
    )]
    NoApiServer,
    /// Cluster-info exists, but no machine could use it.
    #[error("ConfigMap kube-public/cluster-info cannot be used")]
    Announcement(#[source] AnnouncementError),
    /// A call failed.
    #[error("cannot read {what}")]
    Call {
        /// The objects that were read.
        what: &'static str,
        /// The cause.
        source: kube::Error,
    },
}

impl ClusterInfoError {
    /// Returns the reason for the condition that reports this error.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::TokenPending | Self::TokenMissing => Reason::TokenPending,
            Self::NoApiServer => Reason::NoApiServer,
            Self::Announcement(_) => Reason::ClusterInfoInvalid,
            Self::Call { .. } => Reason::FactsFailed,
        }
    }
}

/// The reason why cluster-info cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AnnouncementError {
    /// It is kept for each tenant.
    #[error("its key {KUBECONFIG_KEY} is longer than {KUBECONFIG_KIB_MAX} KiB")]
    TooLong,
    /// It is not a kubeconfig.
    #[error("its key {KUBECONFIG_KEY} is not a kubeconfig with a cluster")]
    NotKubeconfig,
    /// A field is invalid.
    #[error("its {KUBECONFIG_KEY} is wrong")]
    Field(#[source] AccessError),
}

/// The parts of the cluster info that existing documents were rendered from, as far as they are
/// known.
#[derive(Clone, Copy, Debug, Default)]
pub struct InUse<'a> {
    /// The address of the API server.
    pub api_server: Option<&'a str>,
    /// The certificate authority, encoded as in [`ClusterInfo`].
    pub certificate_authority_data: Option<&'a str>,
}

impl InUse<'_> {
    /// Returns true if documents that were rendered from this would not change.
    fn equals(&self, cluster_info: &ClusterInfo) -> bool {
        let authority = self.certificate_authority_data;
        self.api_server == Some(&*cluster_info.api_server)
            && authority.is_none_or(|it| it == cluster_info.certificate_authority_data)
    }
}

/// Reads the cluster info. An endpoint that is in use is kept while it is ready.
///
/// If reading cluster-info is forbidden, the endpoints are used. If that would change what is in
/// use, one refusal is not enough: an API server that has just started may refuse what it allows a
/// moment later. The read is then retried for 15 to 30 seconds first.
///
/// # Errors
///
/// Returns an error if any call fails; callers keep the previous cluster info. The endpoints are
/// used only if cluster-info does not exist or must not be read.
pub async fn read(
    client: &Client,
    kubeconfig_ca: &[u8],
    in_use: InUse<'_>,
) -> Result<ClusterInfo, ClusterInfoError> {
    let waits = RetryDelay::new(FORBIDDEN_WAIT, FORBIDDEN_WAIT_MAX);
    for wait in waits.take(FORBIDDEN_RETRIES) {
        let (cluster_info, announced) = read_all(client, kubeconfig_ca, in_use).await?;
        if !matches!(announced, Announced::Forbidden) || in_use.equals(&cluster_info) {
            return Ok(cluster_info);
        }
        tokio::time::sleep(wait).await;
    }
    read_once(client, kubeconfig_ca, in_use).await
}

/// Reads the cluster info without retries. Used by commands that show it and keep nothing.
///
/// # Errors
///
/// Returns the same errors as [`read`].
pub async fn read_once(
    client: &Client,
    kubeconfig_ca: &[u8],
    in_use: InUse<'_>,
) -> Result<ClusterInfo, ClusterInfoError> {
    read_all(client, kubeconfig_ca, in_use)
        .await
        .map(|(cluster_info, _)| cluster_info)
}

/// Reads the cluster info of a cluster that may not have been served yet: if the fetcher has no
/// token, a text that is none stands for it.
///
/// # Errors
///
/// Returns the same errors as [`read`], except for a missing token.
pub async fn read_unprepared(
    client: &Client,
    kubeconfig_ca: &[u8],
    in_use: InUse<'_>,
) -> Result<ClusterInfo, ClusterInfoError> {
    let fetch_token = match fetch_token(client).await {
        Err(ClusterInfoError::TokenPending | ClusterInfoError::TokenMissing) => {
            SecretText::new(NO_TOKEN)
        }
        found => found?,
    };
    let read = read_with(client, fetch_token, kubeconfig_ca, in_use).await;
    read.map(|(cluster_info, _)| cluster_info)
}

async fn read_all(
    client: &Client,
    kubeconfig_ca: &[u8],
    in_use: InUse<'_>,
) -> Result<(ClusterInfo, Announced), ClusterInfoError> {
    let fetch_token = fetch_token(client).await?;
    read_with(client, fetch_token, kubeconfig_ca, in_use).await
}

async fn read_with(
    client: &Client,
    fetch_token: SecretText,
    kubeconfig_ca: &[u8],
    in_use: InUse<'_>,
) -> Result<(ClusterInfo, Announced), ClusterInfoError> {
    let announced = cluster_info(client).await?;
    let (api_server, certificate_authority_data) = match &announced {
        Announced::At(cluster) => (
            cluster.server.clone(),
            cluster.certificate_authority_data.clone(),
        ),
        Announced::Nowhere | Announced::Forbidden => {
            let ready = ready_endpoint(client, in_use.api_server).await?;
            let api_server = ready.ok_or(ClusterInfoError::NoApiServer)?;
            (api_server, STANDARD.encode(kubeconfig_ca))
        }
    };
    let cluster_info = ClusterInfo {
        api_server,
        certificate_authority_data,
        fetch_token,
    };
    Ok((cluster_info, announced))
}

async fn fetch_token(client: &Client) -> Result<SecretText, ClusterInfoError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let secret = secrets
        .get_opt(FETCHER_TOKEN)
        .await
        .map_err(|source| ClusterInfoError::Call {
            what: "the fetcher's token",
            source,
        })?;
    let mut secret = secret.ok_or(ClusterInfoError::TokenMissing)?;
    let data = secret.data.as_mut();
    data.and_then(|data| data.remove("token"))
        .and_then(|token| String::from_utf8(token.0).ok())
        .filter(|token| (1..=TOKEN_BYTES_MAX).contains(&token.len()))
        .map(SecretText::new)
        .ok_or(ClusterInfoError::TokenPending)
}

/// The part of cluster-info's kubeconfig that is used.
#[derive(Deserialize)]
struct AnnouncedClusters {
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

/// The result of reading cluster-info.
enum Announced {
    /// The API server, as announced.
    At(Cluster),
    /// There is no cluster-info. Many clusters have none.
    Nowhere,
    /// Reading it is forbidden.
    Forbidden,
}

async fn cluster_info(client: &Client) -> Result<Announced, ClusterInfoError> {
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    match config_maps.get_opt("cluster-info").await {
        Ok(found) => found
            .and_then(|found| found.data?.remove(KUBECONFIG_KEY))
            .map_or(Ok(Announced::Nowhere), |kubeconfig| {
                let cluster = announced(&kubeconfig);
                cluster
                    .map(Announced::At)
                    .map_err(ClusterInfoError::Announcement)
            }),
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(Announced::Forbidden),
        Err(source) => Err(ClusterInfoError::Call {
            what: "ConfigMap kube-public/cluster-info",
            source,
        }),
    }
}

fn announced(kubeconfig: &str) -> Result<Cluster, AnnouncementError> {
    if kubeconfig.len() > KUBECONFIG_KIB_MAX << 10 {
        return Err(AnnouncementError::TooLong);
    }
    let info: AnnouncedClusters =
        serde_saphyr::from_str(kubeconfig).map_err(|_| AnnouncementError::NotKubeconfig)?;
    let named = info.clusters.into_iter().next();
    let mut cluster = named.ok_or(AnnouncementError::NotKubeconfig)?.cluster;
    let authority = access::announced(&cluster.server, &cluster.certificate_authority_data);
    cluster.certificate_authority_data = authority.map_err(AnnouncementError::Field)?;
    Ok(cluster)
}

/// Returns the URL of an API server that is ready: the one that is in use, or else the first.
async fn ready_endpoint(
    client: &Client,
    in_use: Option<&str>,
) -> Result<Option<String>, ClusterInfoError> {
    let slices: Api<DeserializeGuard<EndpointSlice>> = Api::namespaced(client.clone(), "default");
    let of_kubernetes = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    let mut pages = Pages::of(of_kubernetes, PAGE).at_most(PAGES);
    let mut first = None;
    while let Some(page) = pages.next(&slices).await.map_err(|source| {
        let what = "the endpoints of the API server";
        ClusterInfoError::Call { what, source }
    })? {
        for url in page.objects.iter().flat_map(ready_in) {
            if in_use == Some(&url) {
                return Ok(Some(url));
            }
            first.get_or_insert(url);
        }
    }
    Ok(first)
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

/// Returns the port, or 0 if it is out of range. With port 0, using the URL fails visibly.
fn port_number(port: i32) -> u16 {
    u16::try_from(port).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use fake_cluster::Cluster;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_that_no_cluster_issues_is_none() {
        let cluster = Cluster::default();
        for (bytes, is_taken) in [
            (0, false),
            (TOKEN_BYTES_MAX, true),
            (TOKEN_BYTES_MAX + 1, false),
        ] {
            let token = STANDARD.encode("a".repeat(bytes));
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "data": {"token": token},
                "metadata": {"name": FETCHER_TOKEN, "namespace": CLOUD_INIT_SETTINGS},
            });
            cluster.put_raw(secret).unwrap();
            let found = fetch_token(&cluster.client()).await;
            assert_eq!(found.is_ok(), is_taken, "{bytes}");
        }
    }

    #[test]
    fn a_kubeconfig_that_is_longer_than_any_is_not_read() {
        let of = |bytes: usize| announced(&"#".repeat(bytes));
        let most = KUBECONFIG_KIB_MAX << 10;
        assert!(matches!(of(most + 1), Err(AnnouncementError::TooLong)));
        assert!(matches!(of(most), Err(AnnouncementError::NotKubeconfig)));
    }
}
