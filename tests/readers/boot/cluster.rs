//! The cluster that machines fetch from: a real API server with what the manager makes there.

use std::time::{Duration, Instant};

use k8s_openapi::api::{core::v1::Secret, rbac::v1::RoleBinding};
use kube::{
    Client,
    api::{Api, DeleteParams, PostParams},
};
use loadtest::control_plane::{ControlPlane, Params};
use osm::tenant::id::RegistrationId;
use osm::{
    api::names::{CLOUD_CONFIG_KEY, CLOUD_INIT_SETTINGS, FETCHER, FETCHER_TOKEN},
    fleet::prerequisites::{ensure_fetcher, ensure_namespace, keep_fetcher},
};
use serde_json::json;

use crate::machine::Access;

/// For the token controller, which needs a moment; generous for a busy computer.
const PATIENCE: Duration = Duration::from_mins(1);

fn registration() -> RegistrationId {
    RegistrationId::new("berlin", "berlin")
}

/// A cluster whose Secrets only its nodes' ServiceAccount may read.
pub struct Cluster {
    plane: ControlPlane,
    client: Client,
    access: Access,
}

impl Cluster {
    pub async fn start() -> Self {
        let plane = ControlPlane::start(Params::default())
            .await
            .expect("a control plane starts");
        let client = plane.client().await.expect("its kubeconfig works");
        ensure_namespace(&client)
            .await
            .expect("a namespace is made");
        ensure_fetcher(&registration(), &client)
            .await
            .expect("a fetcher is made");
        keep_fetcher(&registration(), &client)
            .await
            .expect("it may read Secrets");
        let access = Access {
            server: plane.server().to_owned(),
            authority: plane.ca_certificate().to_owned(),
            token: token(&client).await,
        };
        Self {
            plane,
            client,
            access,
        }
    }

    /// How nodes reach it.
    pub fn access(&self) -> Access {
        self.access.clone()
    }

    pub async fn go_away(&self) {
        let stopped = self.plane.stop_api_server().await;
        stopped.expect("the API server can be stopped");
    }

    pub async fn come_back(&self) {
        let started = self.plane.start_api_server().await;
        started.expect("the API server starts again");
    }

    /// Takes the right to read Secrets from nodes.
    pub async fn forbid(&self) {
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), CLOUD_INIT_SETTINGS);
        let deleted = bindings.delete(FETCHER, &DeleteParams::default()).await;
        deleted.expect("a role binding can be deleted");
    }

    /// Gives it back.
    pub async fn permit(&self) {
        let kept = keep_fetcher(&registration(), &self.client).await;
        kept.expect("a role binding is made");
    }

    /// Stores the document as a Secret.
    pub async fn publish(&self, name: &str, document: &[u8]) {
        let document = std::str::from_utf8(document).expect("a document is text");
        let secret = json!({
            "metadata": { "name": name },
            "stringData": { CLOUD_CONFIG_KEY: document },
        });
        let secret: Secret = serde_json::from_value(secret).expect("it is a Secret");
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), CLOUD_INIT_SETTINGS);
        let created = secrets.create(&PostParams::default(), &secret).await;
        created.expect("a Secret can be created");
    }

    pub async fn end(self) {
        let ended = self.plane.shutdown().await;
        ended.expect("a control plane ends");
    }
}

async fn token(client: &Client) -> String {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let secret = secrets
            .get(FETCHER_TOKEN)
            .await
            .expect("the Secret is there");
        if let Some(token) = secret.data.and_then(|mut data| data.remove("token")) {
            return String::from_utf8(token.0).expect("a token is text");
        }
        assert!(Instant::now() < deadline, "the fetcher gets no token");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
