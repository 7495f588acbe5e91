//! What a difference takes on running machines with nothing else changed: of two profiles, or of
//! two WorkerClusters' settings.

use std::sync::Arc;

use osm_api::profile::OperatingSystemProfileSpec;
use osm_render::{
    Limits, RenderError,
    default_profiles::{default_profile, default_profiles},
    overlay::resolve,
    render,
    template::CompiledProfile,
};
use osm_tenant::settings::TenantSettings;

use super::{
    effect::{Documents, Effect, effects},
    profile::usable_providers,
    sample::{KUBELET_VERSION, Sample},
};

/// Returns the effect of each difference on machines of the cloud providers that the old profile
/// supports, each part once with its greatest class, the greatest first; empty if there is none.
///
/// # Errors
///
/// A profile cannot be rendered for one of its cloud providers.
pub fn profile_effects(
    old: &CompiledProfile,
    new: &CompiledProfile,
    (settings, kubelet_version): (&TenantSettings, &str),
) -> Result<Vec<Effect>, RenderError> {
    let mut all: Vec<Effect> = Vec::new();
    for provider in usable_providers(old.spec()) {
        let mut found = Vec::new();
        if usable_providers(new.spec()).any(|it| it == provider) {
            let sample = Sample::new(old.spec(), provider, kubelet_version)?;
            found = sample.effects((old, settings), (new, settings))?;
        } else {
            found.push(Effect::new_machine(&format!(
                "cloud provider {}, which is gone",
                provider.as_str()
            )));
        }
        add(&mut all, found);
    }
    Ok(all)
}

/// Returns the effect of each difference of the settings on machines of the default profiles, on
/// one of their cloud providers, each part once with its greatest class, the greatest first.
pub fn settings_effects(old: &TenantSettings, new: &TenantSettings) -> Vec<Effect> {
    let mut all = Vec::new();
    for profile in default_profiles() {
        let found = default_profile(profile.name).and_then(|default| {
            let profile = CompiledProfile::compile(&default.spec).ok()?;
            let provider = usable_providers(profile.spec()).next()?;
            let sample = Sample::new(profile.spec(), provider, KUBELET_VERSION).ok()?;
            sample.effects((&profile, old), (&profile, new)).ok()
        });
        let unknown = || vec![Effect::new_machine(profile.name)];
        add(&mut all, found.unwrap_or_else(unknown));
    }
    // What the settings say of the cluster is no input of a sample.
    if old.api_server_override != new.api_server_override {
        add(
            &mut all,
            vec![Effect::new_machine("the API server's address")],
        );
    }
    if old.kubernetes_ca_bundle != new.kubernetes_ca_bundle {
        add(
            &mut all,
            vec![Effect::new_machine("its certificate authority")],
        );
    }
    all
}

impl Sample {
    /// Returns the effect of each difference on a machine of this sample.
    fn effects(
        &self,
        old: (&CompiledProfile, &TenantSettings),
        new: (&CompiledProfile, &TenantSettings),
    ) -> Result<Vec<Effect>, RenderError> {
        let limits = Limits::default();
        let rendered = |(profile, settings)| render(&self.input(profile, settings), &limits);
        let declared = &new.0.spec().effects;
        let (old, new) = (rendered(old)?, rendered(new)?);
        Ok(effects(Documents::of(&old), Documents::of(&new), declared))
    }
}

/// Adds effects: each part once, and the greatest class first.
fn add(all: &mut Vec<Effect>, found: Vec<Effect>) {
    for effect in found {
        match all.iter_mut().find(|it| it.part == effect.part) {
            Some(known) if known.class < effect.class => *known = effect,
            Some(_) => {}
            None => all.push(effect),
        }
    }
    all.sort_by_key(|effect| std::cmp::Reverse(effect.class));
}

/// Returns the effects of a changed profile with default settings; `None` if they are not known.
pub fn sample_effects(
    name: &str,
    (old, new): (&OperatingSystemProfileSpec, &OperatingSystemProfileSpec),
) -> Option<Vec<Effect>> {
    let find = |name: &str| default_profile(name).map(|it| Arc::new(it.spec));
    let compiled = |spec| {
        let whole = resolve(name, spec, find).ok()?;
        CompiledProfile::compile(&whole).ok()
    };
    let about = (&TenantSettings::default(), KUBELET_VERSION);
    profile_effects(&compiled(old)?, &compiled(new)?, about).ok()
}
