//! The settings of a manager that runs in a Deployment, from its command line: KKP passes all
//! settings of a cluster there, and has another program start the manager.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Container};
use serde::Deserialize;

use super::{
    CONTROLLER_FLAGS, ControllerFlags, DefaultProfileInstallation, DropInSettings, InvalidFlag,
    read,
};
use crate::api::{
    names::{KUBE_SYSTEM, is_path_segment},
    worker_cluster::{
        DefaultProfiles, Home, ProfileAnnotation, RegistryCredentialsReference, SecretReference,
        WorkerClusterSpec,
    },
};
use crate::telemetry::chain::chain;
use crate::tenant::mode::NamespacedName;

const PROGRAM: &str = "osm-controller";
/// The flag of the program that starts the manager, in front of the manager's command line.
const WRAPPED: &str = "-command";

/// The reason why the settings of a Deployment cannot be used.
#[derive(Debug, thiserror::Error)]
enum NotUsable {
    /// The manager is not there.
    #[error("no container runs {PROGRAM}")]
    NoManager,
    /// The command line of the manager cannot be read.
    #[error("what follows {WRAPPED} is not JSON with `command` and `args`")]
    Wrapped,
    /// A flag is unknown, or has a value of another type.
    #[error("{0}")]
    Flag(String),
    /// A flag has an invalid value.
    #[error(transparent)]
    Value(#[from] InvalidFlag),
    /// A flag names a file.
    #[error("-{0} names a file in the manager's pod")]
    File(&'static str),
    /// The Secret with registry credentials cannot have that name.
    #[error("-node-registry-credentials-secret names no Secret that can exist")]
    Credentials,
    /// The profiles are somewhere else.
    #[error("the manager's profiles are not in {KUBE_SYSTEM} of the worker cluster")]
    ElsewhereAtHome,
}

/// A command line in JSON.
#[derive(Deserialize)]
struct Wrapped {
    command: String,
    #[serde(default)]
    args: Vec<String>,
}

/// Returns the spec of a WorkerCluster with the settings of the manager that a Deployment runs, for
/// a worker cluster whose kubeconfig is in this Secret.
///
/// # Errors
///
/// It runs none, or one whose settings are not all in its command line. The text is for operators.
pub fn spec_of(deployment: &Deployment, secret: &str) -> Result<WorkerClusterSpec, String> {
    let settings = settings_of(deployment).map_err(|error| chain(&error).to_string())?;
    Ok(spec(settings, secret))
}

fn settings_of(deployment: &Deployment) -> Result<DropInSettings, NotUsable> {
    let pod = deployment.spec.template.spec.as_ref();
    for container in pod.into_iter().flat_map(|pod| &pod.containers) {
        if let Some(words) = words_of(container)? {
            return settings(&words);
        }
    }
    Err(NotUsable::NoManager)
}

/// Returns the words behind the manager's name, if the container runs it.
fn words_of(container: &Container) -> Result<Option<Vec<String>>, NotUsable> {
    let lists = [&container.command, &container.args];
    let mut words = lists.into_iter().flatten().flatten();
    let Some(program) = words.next() else {
        return Ok(None);
    };
    if is_manager(program) {
        return Ok(Some(words.cloned().collect()));
    }
    let Some(line) = words.skip_while(|word| *word != WRAPPED).nth(1) else {
        return Ok(None);
    };
    let wrapped: Wrapped = serde_json::from_str(line).map_err(|_| NotUsable::Wrapped)?;
    Ok(is_manager(&wrapped.command).then_some(wrapped.args))
}

fn is_manager(program: &str) -> bool {
    program.rsplit('/').next() == Some(PROGRAM)
}

/// Returns the spec with which the same documents are made, whatever the fleet's defaults are.
fn spec(settings: DropInSettings, secret: &str) -> WorkerClusterSpec {
    let DropInSettings {
        tenant,
        registry_credentials,
        default_profiles,
        ..
    } = settings;
    WorkerClusterSpec {
        kubeconfig_secret_ref: SecretReference {
            name: secret.to_owned(),
        },
        home: Home::Worker,
        default_profiles: match default_profiles {
            DefaultProfileInstallation::Kept => DefaultProfiles::Keep,
            DefaultProfileInstallation::Disabled => DefaultProfiles::Disabled,
        },
        profile_annotation: ProfileAnnotation::RequireAnnotation,
        cluster_dns: Some(tenant.cluster_dns.iter().map(ToString::to_string).collect()),
        external_cloud_provider: Some(tenant.external_cloud_provider),
        http_proxy: Some(tenant.http_proxy.unwrap_or_default()),
        no_proxy: Some(tenant.no_proxy.unwrap_or_default()),
        host_ca_bundle: Some(tenant.host_ca_bundle),
        kubernetes_ca_bundle: Some(tenant.kubernetes_ca_bundle.unwrap_or_default()),
        pause_image: Some(tenant.pause_image),
        initial_taints: Some(tenant.initial_taints),
        kubelet_feature_gates: Some(tenant.kubelet_feature_gates),
        device_ownership_from_security_context: Some(tenant.device_ownership_from_security_context),
        insecure_registries: Some(tenant.insecure_registries),
        registry_mirrors: Some(tenant.registry_mirrors),
        registry_credentials_secret_ref: registry_credentials.map(|named| {
            RegistryCredentialsReference {
                name: named.name,
                namespace: Some(named.namespace),
            }
        }),
        api_server_override: Some(tenant.api_server_override.unwrap_or_default()),
        node_credentials: Some(tenant.node_credentials),
        stored_config: Some(tenant.stored_config),
        ..WorkerClusterSpec::default()
    }
}

fn settings(words: &[String]) -> Result<DropInSettings, NotUsable> {
    let flags = read(PROGRAM, CONTROLLER_FLAGS, words).map_err(|stop| {
        let why = stop.text.lines().next().unwrap_or_default();
        NotUsable::Flag(why.to_owned())
    })?;
    let flags: ControllerFlags = flags.flags;
    for (name, file) in [
        ("kubernetes-ca-bundle", &flags.kubernetes_ca_bundle),
        ("host-ca-bundle", &flags.host_ca_bundle),
        ("ca-bundle", &flags.ca_bundle),
    ] {
        if !file.is_empty() {
            return Err(NotUsable::File(name));
        }
    }
    if flags.namespace != KUBE_SYSTEM || !flags.worker_cluster_kubeconfig.is_empty() {
        return Err(NotUsable::ElsewhereAtHome);
    }
    let settings = flags.check()?;
    if let Some(NamespacedName { namespace, name }) = &settings.registry_credentials
        && !(is_path_segment(namespace) && is_path_segment(name))
    {
        return Err(NotUsable::Credentials);
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(containers: &Value) -> Result<DropInSettings, NotUsable> {
        let deployment = json!({"spec": {
            "selector": {}, "template": {"spec": {"containers": containers}},
        }});
        settings_of(&serde_json::from_value(deployment).unwrap())
    }

    /// As KKP writes it: another program waits for the API server, and then starts the manager.
    fn wrapped(words: &[&str]) -> Value {
        let line = json!({"command": "/usr/local/bin/osm-controller", "args": words}).to_string();
        let args = [
            "-endpoint",
            "https://api/healthz",
            "-insecure",
            "-command",
            &line,
        ];
        json!([{"name": "a", "command": ["/http-prober-bin/http-prober"], "args": args}])
    }

    #[test]
    fn the_command_line_is_found_wrapped_and_plain_among_other_containers() {
        let words = [
            "-namespace",
            "kube-system",
            "-cluster-dns",
            "169.254.20.10",
            "-external-cloud-provider",
            "-node-no-proxy",
            "a,b&c",
            "-node-containerd-registry-mirrors=docker.io=https://m.example",
        ];
        let command = [&["/usr/local/bin/osm-controller"], &words[..]].concat();
        let plain = json!([{"name": "sidecar"}, {"name": "a", "command": command}]);
        for containers in [wrapped(&words), plain] {
            let found = of(&containers).unwrap();
            assert!(found.tenant.external_cloud_provider, "{containers}");
            assert_eq!(found.tenant.no_proxy.as_deref(), Some("a,b&c"));
            assert_eq!(
                found.tenant.registry_mirrors["docker.io"],
                ["https://m.example"]
            );
        }
    }

    #[test]
    fn what_is_not_all_in_the_command_line_is_refused_with_the_reason() {
        let home = ["-namespace", "kube-system"];
        for (more, why) in [
            (
                &["-later", "1"][..],
                "flag provided but not defined: -later",
            ),
            (
                &["-host-ca-bundle", "/a.pem"],
                "-host-ca-bundle names a file",
            ),
            (&["-cluster-dns", "x"], "unable to parse ip x"),
            (&["-worker-cluster-kubeconfig", "/a"], "not in kube-system"),
            (&["-namespace", "other"], "not in kube-system"),
            (
                &["-node-registry-credentials-secret", "a/b\nkind: x"],
                "names no Secret that can exist",
            ),
        ] {
            let refused = of(&wrapped(&[&home[..], more].concat())).unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
        }
        let torn = json!([{"name": "a", "command": ["x"], "args": ["-command", "{"]}]);
        assert!(matches!(of(&torn), Err(NotUsable::Wrapped)));
        assert!(matches!(
            of(&json!([{"name": "a"}])),
            Err(NotUsable::NoManager)
        ));
    }
}
