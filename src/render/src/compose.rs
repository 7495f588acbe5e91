//! Composes a rendered config from a profile: what is rendered, what is copied, and what is added.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{
    containerd,
    data::{FETCH_TOKEN, ValidInput, mark_rhel, marker},
    encode::cloud_init::module_value,
    error::{Half, RenderError},
    input::RhelSpec,
    kubelet::{credential_providers, drop_in},
    machine_updates,
    source::{files_of, half_of, inline_of},
};
use osm_api::{
    config::{ConfigHalf, OperatingSystemConfigSpec},
    profile::{
        CloudInitModules, CloudProviderSpec, File, FileContent, FileContentInline, OperatingSystem,
        PERMISSIONS_DEFAULT, ProvisioningUtility, TemplateLanguage,
    },
    worker_cluster::MachineUpdates,
};
use osm_tenant::secret_text::SecretText;

/// The mode of the files that are added: `hosts.toml`, and what configures the kubelet.
const ADDED_PERMISSIONS: i32 = 600;

/// The form of a config.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// With all secrets, as the documents need it.
    Inline,
    /// With markers in place of secrets, and without the cloud provider's settings.
    Stored,
}

/// Returns the tool that reads the documents, if the profile and the machine deployment agree on
/// it.
pub(super) fn provisioning_utility(
    valid: &ValidInput<'_>,
) -> Result<ProvisioningUtility, RenderError> {
    let input = &valid.input;
    let needed = input.machine_deployment.provider.provisioning_utility()?;
    let offered = input
        .profile
        .spec()
        .provisioning_utility
        .unwrap_or(ProvisioningUtility::CloudInit);
    let is_versioned = input.profile.spec().ignition_version.is_some();
    if offered == ProvisioningUtility::CloudInit && is_versioned {
        return Err(RenderError::IgnitionVersionUnused);
    }
    if needed == offered {
        return Ok(needed);
    }
    Err(RenderError::UtilityMismatch {
        profile: offered.as_str().into(),
        machine_deployment: needed.as_str().into(),
    })
}

/// The rendered text of every file, by half, in the order of `files_of`.
pub(super) struct RenderedFiles {
    pub(super) bootstrap: Vec<String>,
    pub(super) provisioning: Vec<String>,
}

/// Composes a config.
pub(super) fn compose(
    valid: &ValidInput<'_>,
    files: RenderedFiles,
    form: Form,
) -> Result<OperatingSystemConfigSpec, RenderError> {
    let profile = valid.input.profile.spec();
    let bootstrap = compose_half(valid, (Half::Bootstrap, files.bootstrap), form)?;
    let mut provisioning = compose_half(valid, (Half::Provisioning, files.provisioning), form)?;
    let added = containerd::hosts_files(valid.input.settings)?.into_iter();
    let added = added.chain(valid.drop_ins.clone());
    let added = added.chain(valid.image_credential_providers.clone());
    provisioning.files.extend(added.map(|(path, data)| File {
        path,
        permissions: ADDED_PERMISSIONS,
        content: inline(None, data),
    }));
    let utility = provisioning_utility(valid)?;
    let updates = machine_updates::wanted(
        valid.input.machine_deployment.annotations,
        valid.input.settings,
    )?;
    if updates != MachineUpdates::Disabled {
        let token = match form {
            Form::Inline => valid.fetch_token().clone(),
            Form::Stored => marker(valid.fetch_token(), FETCH_TOKEN),
        };
        let files = machine_updates::files(valid, updates, token.expose());
        provisioning.files.extend(files);
        if form == Form::Inline {
            let list = machine_updates::list(&provisioning, utility, (profile, updates));
            provisioning.files.push(list);
        }
    }
    Ok(OperatingSystemConfigSpec {
        os_name: profile.os_name.clone(),
        os_version: profile.os_version.clone(),
        cloud_provider: CloudProviderSpec {
            name: valid.cloud_provider.clone(),
            spec: cloud_provider_spec(valid, form),
        },
        bootstrap_config: bootstrap,
        provisioning_config: provisioning,
        provisioning_utility: Some(utility),
        ignition_version: profile.ignition_version,
    })
}

/// Refuses a config whose kubelet would not read the files that are added for it.
pub(super) fn refuse_unread(
    valid: &ValidInput<'_>,
    config: &OperatingSystemConfigSpec,
) -> Result<(), RenderError> {
    let halves = [&config.bootstrap_config, &config.provisioning_config];
    let is_unread = |words: &[&str]| {
        let mut texts = halves.into_iter().flat_map(ConfigHalf::texts);
        !texts.any(|(_, text)| words.iter().all(|word| text.contains(word)))
    };
    if !valid.drop_ins.is_empty() && is_unread(&drop_in::WORDS) {
        return Err(RenderError::DropInsUnread);
    }
    if valid.image_credential_providers.is_some() && is_unread(&credential_providers::WORDS) {
        return Err(RenderError::ImageCredentialProvidersUnread);
    }
    Ok(())
}

fn cloud_provider_spec(valid: &ValidInput<'_>, form: Form) -> Option<Json> {
    let spec = &valid.input.machine_deployment.provider.cloud_provider_spec;
    (form == Form::Inline && !spec.is_null()).then(|| spec.clone())
}

fn compose_half(
    valid: &ValidInput<'_>,
    (half, texts): (Half, Vec<String>),
    form: Form,
) -> Result<ConfigHalf, RenderError> {
    let profile = half_of(valid.input.profile.spec(), half);
    let mut files = Vec::with_capacity(texts.len());
    for (file, text) in files_of(profile).zip(texts) {
        files.push(File {
            path: file.path.clone(),
            permissions: match file.permissions {
                0 => PERMISSIONS_DEFAULT,
                permissions => permissions,
            },
            content: inline(inline_of(half, file)?.encoding.clone(), text),
        });
    }
    Ok(ConfigHalf {
        units: profile.units.clone(),
        files,
        user_ssh_keys: valid
            .input
            .machine_deployment
            .provider
            .ssh_public_keys
            .clone(),
        modules: modules(valid, profile.modules.as_ref(), form),
    })
}

fn inline(encoding: Option<String>, data: String) -> FileContent {
    FileContent {
        inline: Some(FileContentInline { encoding, data }),
    }
}

/// Returns the modules of a config. Red Hat Enterprise Linux registers with the subscription of the
/// machine deployment, whatever the profile contains. Profiles in Go templates write a key even if
/// it is empty, as their users expect. In YAML, such a key has no value, which cloud-init refuses.
/// Profiles in Jinja therefore omit empty keys, and keep their own module if the machine deployment
/// has no account to register with.
fn modules(
    valid: &ValidInput<'_>,
    modules: Option<&CloudInitModules>,
    form: Form,
) -> Option<CloudInitModules> {
    if valid.operating_system != OperatingSystem::Rhel {
        return modules.cloned();
    }
    let mut modules = modules.cloned().unwrap_or_default();
    let rhel = &valid
        .input
        .machine_deployment
        .provider
        .operating_system_spec
        .rhel;
    let own = std::mem::take(&mut modules.rh_subscription);
    modules.rh_subscription = match form {
        Form::Inline => rh_subscription(rhel),
        Form::Stored => rh_subscription(&mark_rhel(rhel)),
    };
    if valid.input.profile.spec().language() == TemplateLanguage::Jinja {
        modules.rh_subscription.retain(|_, value| !value.is_empty());
        let names_account = |key| modules.rh_subscription.contains_key(key);
        if !names_account("username") && !names_account("org") {
            modules.rh_subscription = own;
        }
    }
    Some(modules)
}

fn rh_subscription(rhel: &RhelSpec) -> BTreeMap<String, String> {
    let server = &rhel.satellite_server;
    let secret = |secret: &SecretText| module_value(secret.expose());
    let pairs = if rhel.use_satellite_server {
        vec![
            ("org", secret(&rhel.organization_name)),
            ("activation-key", secret(&rhel.activation_key)),
            ("server-hostname", module_value(server)),
            (
                "rhsm-baseurl",
                module_value(&format!("https://{server}/pulp/repos")),
            ),
        ]
    } else {
        let mut pairs = vec![
            ("username", secret(&rhel.subscription_manager_user)),
            ("password", secret(&rhel.subscription_manager_password)),
            ("auto-attach", rhel.attach_subscription.to_string()),
        ];
        let (organization, key) = (&rhel.organization_name, &rhel.activation_key);
        // cloud-init prefers these to the user.
        if !organization.expose().is_empty() && !key.expose().is_empty() {
            pairs.push(("org", secret(organization)));
            pairs.push(("activation-key", secret(key)));
        }
        pairs
    };
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}
