//! What makes a machine follow its document: report to its node how it differs, and put files into
//! place that are read again without a restart. These are files that are added to the document. The
//! kubelet's unit starts the timer, so any profile can have them.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

use super::{
    data::ValidInput,
    edge_script::quote,
    encode::{is_encoded_by_author, on_machine},
    error::RenderError,
    source::files_of,
};
use osm_api::{
    change::Class,
    config::ConfigHalf,
    names::{CLOUD_INIT_SETTINGS, MACHINE_UPDATES},
    profile::{
        File, FileContent, FileContentInline, OperatingSystemProfileSpec, ProvisioningUtility,
    },
    worker_cluster::MachineUpdates,
};
use osm_tenant::{certificates::separated, settings::TenantSettings};

/// Files that their reader reads each time that it uses them: containerd at a pull, crictl, a
/// login. A `*` stands for the name of a file or a folder.
pub const RELOADED: [&str; 3] = [
    "/etc/containerd/certs.d/*/hosts.toml",
    "/etc/crictl.yaml",
    "/etc/profile.d/*",
];

/// The list of all files: digest, mode, content and path of each. There is content where it may be
/// changed on a machine that runs, and a path alone where nothing is compared. The last line says
/// what machines do.
pub const FILES: &str = "/etc/osm/machine/files";

/// The script, which is read at each run. No machine takes another one by itself.
pub const SCRIPT: &str = "/opt/bin/osm-machine";
/// The certificate authority of the API server.
pub const AUTHORITY: &str = "/etc/osm/machine/ca.crt";
/// The token that fetches documents.
pub const HEADER: &str = "/etc/osm/machine/header";
const BODY: &str = include_str!("machine_updates/machine.sh");
const HEAD: &str = "#!/bin/bash\n# Compares this machine with its document, and follows it.\n";

/// Files that are the same on every machine.
const UNITS: [(&str, &str); 3] = [
    (
        "/etc/systemd/system/osm-machine.service",
        "[Unit]\n\
         Description=Compare this machine with its document, and follow it\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         EnvironmentFile=-/etc/environment\n\
         ExecStart=/opt/bin/osm-machine\n\
         TimeoutStartSec=90\n\
         SyslogLevel=warning\n\
         LogLevelMax=warning\n",
    ),
    (
        "/etc/systemd/system/osm-machine.timer",
        "[Unit]\n\
         Description=Compare this machine with its document\n\
         \n\
         [Timer]\n\
         OnActiveSec=10\n\
         OnUnitInactiveSec=30\n\
         RandomizedDelaySec=10\n\
         AccuracySec=1\n",
    ),
    (
        "/etc/systemd/system/kubelet.service.d/50-osm-machine.conf",
        "[Unit]\nWants=osm-machine.timer\n",
    ),
];

/// Returns what the machines of a machine deployment do: its annotation overrides the tenant's
/// setting.
///
/// # Errors
///
/// The annotation has another value.
pub fn wanted(
    annotations: &BTreeMap<String, String>,
    settings: &TenantSettings,
) -> Result<MachineUpdates, RenderError> {
    match annotations.get(MACHINE_UPDATES).map(String::as_str) {
        None => Ok(settings.machine_updates),
        Some("Disabled") => Ok(MachineUpdates::Disabled),
        Some("Report") => Ok(MachineUpdates::Report),
        Some("Reload") => Ok(MachineUpdates::Reload),
        Some(_) => Err(RenderError::KubeletAnnotation {
            annotation: MACHINE_UPDATES.to_owned(),
            reason: "it must be `Disabled`, `Report` or `Reload`".into(),
        }),
    }
}

/// Returns true if a machine takes another content of this file by itself: its readers, or its
/// profile, say that nothing more is needed.
pub fn is_taken(path: &str, profile: &OperatingSystemProfileSpec) -> bool {
    let files = files_of(&profile.provisioning_config);
    let mut own = files.filter(|file| file.path == path);
    let declared = profile.effects.iter().find(|it| it.path == path);
    let is_reloaded = declared.map_or_else(
        || RELOADED.iter().any(|pattern| is_at(pattern, path)),
        |declared| declared.class == Class::Reload,
    );
    is_reloaded && own.all(|file| !is_encoded_by_author(file))
}

/// Returns true if a path is that of a pattern, in which a `*` stands for the name of a file or a
/// folder.
pub fn is_at(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        Some((before, after)) => {
            let rest = path.strip_prefix(before);
            let name = rest.and_then(|rest| rest.strip_suffix(after));
            name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
        }
        None => path == pattern,
    }
}

/// Returns the files, except for the list of all files. `token` may be a marker in its place.
pub(super) fn files(valid: &ValidInput<'_>, updates: MachineUpdates, token: &str) -> Vec<File> {
    let cluster = &valid.input.cluster;
    let server = quote(cluster.api_server.trim_end_matches('/'));
    let proxy = match (&valid.input.settings.http_proxy, valid.server_is_direct()) {
        (None, _) => "",
        (Some(_), true) => "--noproxy '*'",
        (Some(_), false) => "--noproxy ''",
    };
    let follows = updates == MachineUpdates::Reload;
    let document = if follows {
        let name = &valid.names.provisioning;
        format!("namespaces/{CLOUD_INIT_SETTINGS}/secrets/{name}")
    } else {
        String::new()
    };
    let script = format!(
        "{HEAD}server={server}\nproxy=({proxy})\ndocument={}\n{BODY}",
        quote(&document)
    );
    let header = follows.then(|| file(HEADER, 600, format!("Authorization: Bearer {token}\n")));
    let authority = separated(cluster.kubernetes_ca_certificate).into_owned();
    let own = [file(SCRIPT, 755, script), file(AUTHORITY, 644, authority)];
    let units = UNITS.map(|(path, text)| file(path, 644, text.to_owned()));
    own.into_iter().chain(header).chain(units).collect()
}

/// Returns the list of all files. It has digests of secrets, so it is in no stored config with
/// markers.
pub(super) fn list(
    half: &ConfigHalf,
    utility: ProvisioningUtility,
    (profile, updates): (&OperatingSystemProfileSpec, MachineUpdates),
) -> File {
    let lines = on_machine(half, utility).into_iter().map(|(path, found)| {
        let Some((mode, text)) = found else {
            return format!("- - - {path}\n");
        };
        let digest = hex::encode(Sha256::digest(text.as_bytes()));
        let content = if is_taken(&path, profile) {
            // The script removes the dot.
            format!(".{}", STANDARD.encode(text))
        } else {
            "-".to_owned()
        };
        format!("{digest} {mode:o} {content} {path}\n")
    });
    let end = match updates {
        MachineUpdates::Reload => "end Reload\n",
        _ => "end Report\n",
    };
    file(FILES, 600, lines.chain([end.to_owned()]).collect())
}

fn file(path: &str, permissions: i32, data: String) -> File {
    File {
        path: path.to_owned(),
        permissions,
        content: FileContent {
            inline: Some(FileContentInline {
                encoding: Some("b64".to_owned()),
                data,
            }),
        },
    }
}
