//! Tests of version 2 of containerd's configuration. Vectors cover version 3.

use super::*;

fn config(world: &mut fixtures::World) -> String {
    world.text("{{ ContainerRuntimeConfigV2 }}").unwrap()
}

#[test]
fn the_second_version_names_the_one_plugin_that_it_knows() {
    let mut world = a_world();
    world.settings.pause_image = "registry.example.com/pause:3.10".to_owned();
    world.settings.device_ownership_from_security_context = true;
    let expected = r#"version = 2

[metrics]
address = "127.0.0.1:1338"

[plugins]
[plugins."io.containerd.grpc.v1.cri"]
device_ownership_from_security_context = true
sandbox_image = "registry.example.com/pause:3.10"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/etc/containerd/certs.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
discard_unpacked_layers = false
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes]
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/opt/cni/bin"
conf_dir = "/etc/cni/net.d"
"#;
    assert_eq!(config(&mut world), expected);
    world.settings.pause_image.clear();
    assert!(!config(&mut world).contains("sandbox_image"));
}

#[test]
fn the_second_version_carries_the_credentials_of_registries() {
    let mut world = a_world();
    world.registry_credentials.insert(
        "https://gcr.io/v1/".to_owned(),
        RegistryCredential {
            username: SecretText::new("user"),
            password: SecretText::new("word\"s"),
            ..RegistryCredential::default()
        },
    );
    let expected = r#"[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/etc/containerd/certs.d"
[plugins."io.containerd.grpc.v1.cri".registry.configs]
[plugins."io.containerd.grpc.v1.cri".registry.configs."gcr.io"]
[plugins."io.containerd.grpc.v1.cri".registry.configs."gcr.io".auth]
username = "user"
password = "word\"s"
[plugins."io.containerd.grpc.v1.cri".containerd]
"#;
    let config = config(&mut world);
    assert!(config.contains(expected), "{config}");
}

#[test]
fn credentials_reach_containerd_under_the_host_that_it_asks() {
    for (key, host) in [
        ("https://index.docker.io/v1/", "registry-1.docker.io"),
        ("index.docker.io", "registry-1.docker.io"),
        ("docker.io", "registry-1.docker.io"),
        ("registry-1.docker.io", "registry-1.docker.io"),
        ("ghcr.io", "ghcr.io"),
        ("registry.example.com:5000", "registry.example.com:5000"),
    ] {
        let mut world = a_world();
        let mut give = |key: &str, user: &str| {
            let credential = RegistryCredential {
                username: SecretText::new(user),
                ..RegistryCredential::default()
            };
            world
                .registry_credentials
                .insert(key.to_owned(), credential);
        };
        give(key, "user");
        if key == "docker.io" {
            give("registry-1.docker.io", "own");
        }
        let user = if key == "docker.io" { "own" } else { "user" };
        let expected = format!(".registry.configs.\"{host}\".auth]\nusername = \"{user}\"\n");
        let config = config(&mut world);
        assert!(config.contains(&expected), "{key}: {config}");
        assert_eq!(config.matches("username").count(), 1, "{key}");
    }
}

/// Returns the `hosts.toml` files of a render.
fn hosts(world: &fixtures::World) -> BTreeMap<String, String> {
    let files = world.render().unwrap().config.provisioning_config.files;
    files
        .iter()
        .map(|file| (file.path.clone(), data(file)))
        .collect()
}

#[test]
fn the_server_of_a_registry_with_a_path_is_its_hosts() {
    let mut world = a_world();
    world.settings.registry_mirrors.insert(
        "docker.io/library".to_owned(),
        vec!["https://mirror.example.com".to_owned()],
    );
    let hosts = hosts(&world);
    let text = &hosts["/etc/containerd/certs.d/docker.io/hosts.toml"];
    assert!(
        text.starts_with("server = \"https://registry-1.docker.io\"\n"),
        "{text}"
    );
    assert!(
        text.contains("[host.\"https://mirror.example.com\"]"),
        "{text}"
    );
}

#[test]
fn a_registry_with_an_empty_list_of_mirrors_has_none() {
    let mut world = a_world();
    let path = "/etc/containerd/certs.d/docker.io/hosts.toml";
    assert!(hosts(&world).contains_key(path));
    world
        .settings
        .registry_mirrors
        .insert("docker.io".to_owned(), Vec::new());
    assert!(!hosts(&world).contains_key(path));
}

#[test]
fn a_mirror_is_written_as_go_writes_its_url() {
    let mut world = a_world();
    world.settings.registry_mirrors.insert(
        "ghcr.io".to_owned(),
        vec!["HTTPS://u:p@s@Mirror.example.com/a b".to_owned()],
    );
    let hosts = hosts(&world);
    let text = &hosts["/etc/containerd/certs.d/ghcr.io/hosts.toml"];
    let written = "[host.\"https://u:p%40s@Mirror.example.com/a%20b\"]";
    assert!(text.contains(written), "{text}");
}
