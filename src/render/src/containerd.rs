//! The configuration of containerd: `config.toml`, and one `hosts.toml` per registry with mirrors.
//!
//! The bytes are those that nodes have today, so the TOML is written by hand, in the order of its
//! keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::{error::RenderError, input::RegistryCredential};
use osm_tenant::settings::{MirrorOrder, TenantSettings};

mod mirror;

use mirror::Mirror;

const DOCKER: &str = "docker.io";
const DOCKER_HOST: &str = "registry-1.docker.io";
const DOCKER_SERVER: &str = "https://registry-1.docker.io";
const IMAGES: &str = r#"[plugins."io.containerd.cri.v1.images"#;
const RUNTIME: &str = r#"[plugins."io.containerd.cri.v1.runtime"#;
/// Before version 3 of the configuration, one plugin had both sections.
const CRI: &str = r#"[plugins."io.containerd.grpc.v1.cri"#;

/// Returns the text of `/etc/containerd/config.toml`.
pub(super) fn config_toml(
    settings: &TenantSettings,
    credentials: &BTreeMap<String, RegistryCredential>,
) -> String {
    let mut out = start(3);
    let _ = writeln!(out, "{IMAGES}\"]\ndiscard_unpacked_layers = false");
    if !settings.pause_image.is_empty() {
        let _ = writeln!(out, "{IMAGES}\".pinned_images]");
        push_text(&mut out, "sandbox", &settings.pause_image);
    }
    push_registry(&mut out, IMAGES, credentials);
    let _ = writeln!(out, "{RUNTIME}\"]");
    push_device_ownership(&mut out, settings);
    let _ = writeln!(out, "{RUNTIME}\".containerd]");
    push_runc(&mut out, RUNTIME);
    let _ = writeln!(
        out,
        "{RUNTIME}\".cni]\nbin_dirs = [\"/opt/cni/bin\"]\nconf_dir = \"/etc/cni/net.d\""
    );
    out
}

/// Returns the same in version 2 of the configuration. containerd 1.7 reads only this version;
/// containerd 2 reads it, too.
pub(super) fn config_toml_v2(
    settings: &TenantSettings,
    credentials: &BTreeMap<String, RegistryCredential>,
) -> String {
    let mut out = start(2);
    let _ = writeln!(out, "{CRI}\"]");
    push_device_ownership(&mut out, settings);
    if !settings.pause_image.is_empty() {
        push_text(&mut out, "sandbox_image", &settings.pause_image);
    }
    push_registry(&mut out, CRI, credentials);
    let _ = writeln!(out, "{CRI}\".containerd]\ndiscard_unpacked_layers = false");
    push_runc(&mut out, CRI);
    let _ = writeln!(
        out,
        "{CRI}\".cni]\nbin_dir = \"/opt/cni/bin\"\nconf_dir = \"/etc/cni/net.d\""
    );
    out
}

fn start(version: u8) -> String {
    format!("version = {version}\n\n[metrics]\naddress = \"127.0.0.1:1338\"\n\n[plugins]\n")
}

fn push_registry(
    out: &mut String,
    plugin: &str,
    credentials: &BTreeMap<String, RegistryCredential>,
) {
    let _ = writeln!(
        out,
        "{plugin}\".registry]\nconfig_path = \"/etc/containerd/certs.d\""
    );
    if !credentials.is_empty() {
        let _ = writeln!(out, "{plugin}\".registry.configs]");
    }
    for (registry, credential) in by_host(credentials) {
        push_credential(out, plugin, (registry, credential));
    }
}

fn push_device_ownership(out: &mut String, settings: &TenantSettings) {
    let _ = writeln!(
        out,
        "device_ownership_from_security_context = {}",
        settings.device_ownership_from_security_context
    );
}

fn push_runc(out: &mut String, plugin: &str) {
    let _ = writeln!(out, "{plugin}\".containerd.runtimes]");
    let runc = format!("{plugin}\".containerd.runtimes.runc");
    let _ = writeln!(out, "{runc}]\nruntime_type = \"io.containerd.runc.v2\"");
    let _ = writeln!(out, "{runc}.options]\nSystemdCgroup = true");
}

/// Returns the `hosts.toml` files by path.
///
/// # Errors
///
/// Returns an error if a mirror is not a URL, or if an insecure registry names no host.
pub(super) fn hosts_files(
    settings: &TenantSettings,
) -> Result<BTreeMap<String, String>, RenderError> {
    let docker_mirrors = [DOCKER_SERVER.to_owned()];
    let insecure: BTreeSet<&str> = settings
        .insecure_registries
        .iter()
        .map(String::as_str)
        .collect();
    let registries: BTreeSet<&str> = settings
        .registry_mirrors
        .keys()
        .map(String::as_str)
        .chain(insecure.iter().copied())
        .chain([DOCKER])
        .collect();
    let mut files = BTreeMap::new();
    for registry in registries {
        let given = settings.registry_mirrors.get(registry).map(Vec::as_slice);
        let urls: &[String] = match given {
            // An empty list removes even the registry's own address.
            Some(urls) => urls,
            None if registry == DOCKER => &docker_mirrors,
            None => &[],
        };
        let hosts = Hosts {
            registry,
            is_insecure: insecure.contains(registry),
            order: settings.mirror_order,
        };
        if let Some(text) = hosts.write(urls)? {
            let path = format!("/etc/containerd/certs.d/{}/hosts.toml", hosts.folder());
            files.insert(path, text);
        }
    }
    Ok(files)
}

/// A registry for which a `hosts.toml` is written.
struct Hosts<'a> {
    registry: &'a str,
    is_insecure: bool,
    order: MirrorOrder,
}

impl Hosts<'_> {
    /// Returns true for the default registry. containerd calls it `_default`; users also write `*`.
    fn is_default(&self) -> bool {
        matches!(self.folder(), "_default")
    }

    fn folder(&self) -> &str {
        match self.registry.split('/').next() {
            Some("*") | None => "_default",
            Some(host) => host,
        }
    }

    fn server(&self) -> Option<&str> {
        match self.folder() {
            DOCKER => Some(DOCKER_SERVER),
            _ if self.is_default() => None,
            _ => Some(self.registry),
        }
    }

    fn write(&self, urls: &[String]) -> Result<Option<String>, RenderError> {
        let mut mirrors: Vec<Mirror> = Vec::with_capacity(urls.len().max(1));
        for (index, url) in urls.iter().enumerate() {
            let mirror = Mirror::parse(url).map_err(|reason| RenderError::Mirror {
                registry: self.registry.to_owned(),
                index,
                reason: reason.into(),
            })?;
            match mirrors.iter_mut().find(|known| known.url == mirror.url) {
                Some(known) => *known = mirror,
                None => mirrors.push(mirror),
            }
        }
        if mirrors.is_empty() {
            if !self.is_insecure {
                return Ok(None);
            }
            let server = self
                .server()
                .ok_or_else(|| RenderError::InsecureWithoutHost {
                    registry: self.registry.to_owned(),
                })?;
            mirrors.push(Mirror::plain(server));
        }
        if self.order == MirrorOrder::ByUrl {
            mirrors.sort_by(|left, right| left.url.cmp(&right.url));
        }
        let mut out = String::new();
        if let Some(server) = self.server() {
            push_text(&mut out, "server", server);
            // What follows is of the mirrors. The registry itself is one of them if it has no
            // others.
            let has_others = !urls.is_empty() && self.order == MirrorOrder::AsListed;
            if self.is_insecure && has_others {
                out.push_str("skip_verify = true\n");
            }
            out.push('\n');
        }
        for mirror in &mirrors {
            out.push_str("[host.");
            push_key(&mut out, &mirror.url);
            out.push_str("]\ncapabilities = [\"pull\", \"resolve\"]\n");
            if self.is_insecure {
                out.push_str("skip_verify = true\n");
            }
            if mirror.overrides_path {
                out.push_str("override_path = true\n");
            }
        }
        Ok(Some(out))
    }
}

/// Returns the credentials by the host with which containerd looks them up. Where several names are
/// those of one host, its own name precedes.
fn by_host(
    credentials: &BTreeMap<String, RegistryCredential>,
) -> BTreeMap<&str, &RegistryCredential> {
    let is_own = |registry: &&String| asked_host(registry) == registry.as_str();
    let (own, others): (Vec<_>, Vec<_>) = credentials.keys().partition(is_own);
    let all = others.into_iter().chain(own);
    all.filter_map(|registry| Some((asked_host(registry), credentials.get(registry)?)))
        .collect()
}

/// Returns the host that containerd asks for the images of a registry. `kubectl create secret
/// docker-registry` names Docker Hub by the address of its first API, images by its domain.
fn asked_host(registry: &str) -> &str {
    let host = mirror::host_of(registry);
    match host.split('/').next() {
        Some(DOCKER | "index.docker.io") => DOCKER_HOST,
        _ => host,
    }
}

fn push_credential(
    out: &mut String,
    plugin: &str,
    (registry, credential): (&str, &RegistryCredential),
) {
    for table in ["", ".auth"] {
        let _ = write!(out, "{plugin}\".registry.configs.");
        push_key(out, registry);
        let _ = writeln!(out, "{table}]");
    }
    for (key, secret) in [
        ("username", &credential.username),
        ("password", &credential.password),
        ("auth", &credential.auth),
        ("identitytoken", &credential.identity_token),
    ] {
        if !secret.expose().is_empty() {
            push_text(out, key, secret.expose());
        }
    }
}

fn push_text(out: &mut String, key: &str, value: &str) {
    let _ = write!(out, "{key} = ");
    push_quoted(out, value);
    out.push('\n');
}

/// Writes a key. It is quoted unless it consists of letters, digits, `-` and `_`.
fn push_key(out: &mut String, key: &str) {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !key.is_empty() && key.bytes().all(is_bare) {
        out.push_str(key);
    } else {
        push_quoted(out, key);
    }
}

fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x08' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\x0c' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\x1f' | '\x7f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}
