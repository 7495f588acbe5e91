//! A real Kubernetes control plane on loopback: etcd, kube-apiserver and a small
//! kube-controller-manager, as many clusters at once as a test wants. It shows what the in-memory
//! cluster must do, and deliberately runs no node, no scheduler and no workload controller.
//!
//! ```text
//!  Assets ── the binaries: $KUBEBUILDER_ASSETS, or what Go built from control-plane/
//!  Slot ──── a folder and three ports, held by a file lock
//!  ControlPlane ─┬─ Process etcd
//!                ├─ Process kube-apiserver           stopped and started by tests of an outage
//!                └─ Process kube-controller-manager  fills token Secrets, deletes namespaces, …
//! ```

mod apply;
mod assets;
mod audit;
mod components;
mod credentials;
mod error;
mod kept;
mod process;
mod ready;
mod slot;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

pub use self::apply::ApplyError;
pub use self::assets::{Assets, AssetsError};
pub use self::audit::{AuditEvent, AuditStage, Timestamp};
pub use self::error::Error;

pub(crate) use self::components::Component;
pub(crate) use self::process::Process;

use self::credentials::{Authority, Identity};
use self::slot::Slot;
use crate::tested_servers;

/// A test that keeps a token for longer than a day has another problem.
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

/// What may differ between two clusters of one test.
#[derive(Clone, Debug)]
pub struct Params {
    /// The cluster's name in its kubeconfigs and in error messages.
    pub name: String,
    /// Where machines reach the API server. With it the cluster does what nodes need: it signs
    /// their certificates, watches their heartbeats and asks their kubelets.
    pub machines_reach: Option<Ipv4Addr>,
    /// Further names and addresses in the API server's certificate.
    pub server_names: Vec<String>,
    /// What [`ControlPlane::keep`] has kept of a cluster of this name: it goes on.
    pub kept: Option<PathBuf>,
    /// Who issues its tokens: the API server's own URL, or the usual one.
    pub issuer: Issuer,
    /// Appended to the API server's flags; where a flag is repeated, the later one holds.
    pub api_server_flags: Vec<String>,
}

/// Who issues the tokens of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Issuer {
    /// The name that all clusters have. Nobody else can look up the keys.
    #[default]
    Usual,
    /// The URL of the API server, where everybody finds the keys.
    Itself,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            name: "cluster".to_owned(),
            machines_reach: None,
            server_names: Vec::new(),
            kept: None,
            issuer: Issuer::default(),
            api_server_flags: Vec::new(),
        }
    }
}

/// One running cluster. Dropping it ends its processes and removes its data.
pub struct ControlPlane {
    // The order of the fields is the order in which they go: processes before the data they write.
    controller_manager: Mutex<Option<Process>>,
    api_server: Mutex<Option<Process>>,
    etcd: Mutex<Option<Process>>,
    params: Params,
    assets: Assets,
    authority: Authority,
    admin_kubeconfig: String,
    slot: Slot,
}

impl ControlPlane {
    /// Starts a cluster, and returns when it serves, has its `ServiceAccounts` and publishes
    /// `kube-public/cluster-info`. The first call of all may build the binaries, for minutes.
    pub async fn start(params: Params) -> Result<Self, Error> {
        let assets = Assets::find().await.map_err(Error::Assets)?;
        let slot = Slot::claim().map_err(Error::Slot)?;
        let server = format!("https://127.0.0.1:{}", slot.ports().api_server);
        let authority = match &params.kept {
            Some(kept) => kept::authority(kept, &params.name, server)?,
            None => Authority::new(&params.name, server).map_err(Error::Certificates)?,
        };
        let plane = Self {
            controller_manager: Mutex::default(),
            api_server: Mutex::default(),
            etcd: Mutex::default(),
            admin_kubeconfig: administrator(&authority)?,
            params,
            assets,
            authority,
            slot,
        };
        match &plane.params.kept {
            Some(kept) => kept::restore(kept, plane.folder())?,
            None => plane.write_signing_key()?,
        }
        plane.start_etcd().await?;
        plane.serve().await?;
        let version = plane.server_version().await?;
        tested_servers::record(&format!("kube-apiserver {version}")).map_err(Error::Record)?;
        Ok(plane)
    }

    /// The name that was given to the cluster.
    pub fn name(&self) -> &str {
        &self.params.name
    }

    /// The address of the API server, as in its kubeconfigs.
    pub fn server(&self) -> &str {
        self.authority.server_address()
    }

    /// The certificate of the cluster's own authority, in PEM.
    pub fn ca_certificate(&self) -> &str {
        self.authority.certificate()
    }

    /// Where the cluster keeps its data, keys and logs for as long as it runs.
    pub fn folder(&self) -> &Path {
        self.slot.folder()
    }

    /// The `kubectl` that belongs to this Kubernetes.
    pub fn kubectl(&self) -> PathBuf {
        self.assets.binary("kubectl")
    }

    /// A kubeconfig that may do everything.
    pub fn admin_kubeconfig(&self) -> String {
        self.admin_kubeconfig.clone()
    }

    /// A kubeconfig with a client certificate for any user, in at most one group.
    pub fn kubeconfig_with_client_certificate(
        &self,
        user: &str,
        group: Option<&str>,
    ) -> Result<String, Error> {
        let identity = self
            .authority
            .client(user, group)
            .map_err(Error::Certificates)?;
        Ok(self.authority.kubeconfig(user, &identity.login()))
    }

    /// A kubeconfig with a fresh token of the service account, which is created where it is
    /// missing.
    pub async fn kubeconfig_for_service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<String, Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name },
        });
        accounts
            .patch(
                name,
                &PatchParams::apply(apply::FIELD_MANAGER),
                &Patch::Apply(&account),
            )
            .await
            .map_err(Error::api("create a service account"))?;
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let issued = accounts
            .create_token_request(name, &kube::api::PostParams::default(), &request)
            .await
            .map_err(Error::api("issue a token"))?;
        // Kubernetes always fills it; without it, the first request would be answered by 401.
        let token = issued
            .status
            .and_then(|status| status.token)
            .unwrap_or_default();
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let login = credentials::token_login(&token);
        Ok(self.authority.kubeconfig(&user, &login))
    }

    /// A client that may do everything. It lives in the caller's runtime, so each test needs its
    /// own.
    pub async fn client(&self) -> Result<kube::Client, Error> {
        client_of(&self.admin_kubeconfig).await
    }

    /// The version that the API server reports, such as `v1.36.3`.
    pub async fn server_version(&self) -> Result<String, Error> {
        let client = self.client().await?;
        let info = client
            .apiserver_version()
            .await
            .map_err(Error::api("tell its version"))?;
        Ok(info.git_version)
    }

    /// Kills the API server; etcd and its data stay. Its port stays reserved, and refuses.
    pub async fn stop_api_server(&self) -> Result<(), Error> {
        stop(&self.api_server).await
    }

    /// Starts the API server on its old port with its old data, and returns when it is ready.
    /// One that runs is killed first.
    pub async fn start_api_server(&self) -> Result<(), Error> {
        self.stop_api_server().await?;
        let process = self.spawn(components::api_server(&self.params, &self.slot))?;
        let running = hold(&self.api_server, process);
        ready::api_server(running, self.client().await?).await
    }

    /// What the API server has answered so far, oldest first. An event may be written a moment
    /// after its answer arrives; a watch is here once it has ended.
    pub fn audit_events(&self) -> Result<Vec<AuditEvent>, Error> {
        let (mut events, _) = self.audit_events_from(0)?;
        events.retain(|event| event.stage != AuditStage::ResponseStarted);
        Ok(events)
    }

    /// Everything that the API server has noted behind an offset of its log, and the offset behind
    /// that: for those who look often.
    pub fn audit_events_from(&self, offset: u64) -> Result<(Vec<AuditEvent>, u64), Error> {
        let path = components::audit_log(&self.slot);
        audit::read_from(&path, offset).map_err(|source| Error::File { path, source })
    }

    /// Where etcd answers to clients and tells its metrics, in plain text.
    pub fn etcd_address(&self) -> String {
        format!("127.0.0.1:{}", self.slot.ports().etcd)
    }

    /// As [`apply_yaml`], by a client that may do everything.
    pub async fn apply_yaml(&self, yaml: &str) -> Result<(), Error> {
        apply_yaml(self.client().await?, yaml).await
    }

    /// As [`Self::apply_yaml`], for a file.
    pub async fn apply_file(&self, path: &Path) -> Result<(), Error> {
        let objects = apply::parse_file(path).map_err(Error::Apply)?;
        apply::apply(self.client().await?, objects)
            .await
            .map_err(Error::Apply)
    }

    /// Ends the cluster as dropping it does, without blocking the caller's thread.
    pub async fn shutdown(self) -> Result<(), Error> {
        self.stop_all().await
    }

    async fn stop_all(&self) -> Result<(), Error> {
        stop(&self.controller_manager).await?;
        stop(&self.api_server).await?;
        stop(&self.etcd).await
    }

    /// Ends the cluster's processes, and keeps its data and keys in a folder, from which one of the
    /// same name can start.
    pub async fn keep(&self, folder: &Path) -> Result<(), Error> {
        self.stop_all().await?;
        kept::keep(self.folder(), &self.authority, folder)
    }

    async fn serve(&self) -> Result<(), Error> {
        self.write_files()?;
        self.start_api_server().await?;
        self.start_controller_manager().await?;
        self.publish_cluster_info().await
    }

    fn write_signing_key(&self) -> Result<(), Error> {
        let signing = Identity::key_pair().map_err(Error::Certificates)?;
        self.write_file(components::SIGNING_KEY, &signing.key)?;
        self.write_file(components::SIGNING_PUBLIC_KEY, &signing.certificate)
    }

    fn write_files(&self) -> Result<(), Error> {
        let names = components::server_names(&self.params);
        let serving = self.authority.server(names).map_err(Error::Certificates)?;
        let manager = self.kubeconfig_with_client_certificate(
            "system:kube-controller-manager",
            // One client with every right in place of a service account for each controller.
            Some("system:masters"),
        )?;
        for (name, text) in [
            (components::CA_CERTIFICATE, self.ca_certificate()),
            (components::SERVING_CERTIFICATE, &serving.certificate),
            (components::SERVING_KEY, &serving.key),
            (components::MANAGER_KUBECONFIG, &manager),
            (components::AUDIT_POLICY, audit::POLICY),
        ] {
            self.write_file(name, text)?;
        }
        if self.params.machines_reach.is_some() {
            let client = self
                .authority
                .client("kube-apiserver-kubelet-client", Some("system:masters"))
                .map_err(Error::Certificates)?;
            self.write_file(components::CA_KEY, &self.authority.key())?;
            self.write_file(components::KUBELET_CLIENT_CERTIFICATE, &client.certificate)?;
            self.write_file(components::KUBELET_CLIENT_KEY, &client.key)?;
        }
        Ok(())
    }

    fn write_file(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.folder().join(name);
        std::fs::write(&path, text).map_err(|source| Error::File { path, source })
    }

    async fn start_etcd(&self) -> Result<(), Error> {
        let process = self.spawn(components::etcd(&self.slot))?;
        ready::etcd(hold(&self.etcd, process), self.slot.ports().etcd).await
    }

    async fn start_controller_manager(&self) -> Result<(), Error> {
        let process = self.spawn(components::controller_manager(&self.params, &self.slot))?;
        ready::controller_manager(
            hold(&self.controller_manager, process),
            self.client().await?,
        )
        .await
    }

    async fn publish_cluster_info(&self) -> Result<(), Error> {
        let server = match self.params.machines_reach {
            Some(address) => format!("https://{address}:{}", self.slot.ports().api_server),
            None => self.server().to_owned(),
        };
        let kubeconfig = self.authority.anonymous_kubeconfig(&server);
        let objects = components::cluster_info(&kubeconfig);
        apply::apply(self.client().await?, objects)
            .await
            .map_err(Error::Apply)
    }

    fn spawn(&self, component: components::Component) -> Result<Process, Error> {
        let name = component.name;
        let binary = self.assets.binary(name);
        Process::spawn(&binary, component, self.folder()).map_err(|source| Error::Spawn {
            component: name,
            source,
        })
    }
}

/// A client for any kubeconfig that a [`ControlPlane`] has handed out.
#[expect(
    clippy::disallowed_methods,
    reason = "the kubeconfig is our own; the rule is about those that tenants bring"
)]
pub async fn client_of(kubeconfig: &str) -> Result<kube::Client, Error> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(Error::Kubeconfig)?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    kube::Client::try_from(config.map_err(Error::Kubeconfig)?)
        .map_err(|error| Error::Client(Box::new(error)))
}

/// Applies every document of the text by server-side apply, with force: namespaces and custom
/// resource definitions first, and the rest once those definitions are established.
pub async fn apply_yaml(client: kube::Client, yaml: &str) -> Result<(), Error> {
    let objects = apply::parse("the given text", yaml).map_err(Error::Apply)?;
    apply::apply(client, objects).await.map_err(Error::Apply)
}

fn administrator(authority: &Authority) -> Result<String, Error> {
    let admin = authority
        .client("admin", Some("system:masters"))
        .map_err(Error::Certificates)?;
    Ok(authority.kubeconfig("admin", &admin.login()))
}

fn hold(place: &Mutex<Option<Process>>, process: Process) -> &Mutex<Option<Process>> {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
    place
}

async fn stop(place: &Mutex<Option<Process>>) -> Result<(), Error> {
    // Taken out first: the lock must not be held while waiting.
    let process = place.lock().unwrap_or_else(PoisonError::into_inner).take();
    match process {
        Some(process) => process.stop().await,
        None => Ok(()),
    }
}
