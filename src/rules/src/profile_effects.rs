//! What the difference of two profiles takes on running machines, with nothing else changed.

use std::sync::Arc;

use osm_api::profile::OperatingSystemProfileSpec;
use osm_render::{
    Limits, RenderError, default_profiles::default_profile, overlay::resolve, render,
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
    let declared = &new.spec().effects;
    let mut all: Vec<Effect> = Vec::new();
    for provider in usable_providers(old.spec()) {
        let mut found = Vec::new();
        if usable_providers(new.spec()).any(|it| it == provider) {
            let sample = Sample::new(old.spec(), provider, kubelet_version)?;
            let rendered = |profile| render(&sample.input(profile, settings), &Limits::default());
            let (old, new) = (rendered(old)?, rendered(new)?);
            found = effects(Documents::of(&old), Documents::of(&new), declared);
        } else {
            found.push(Effect::new_machine(&format!(
                "cloud provider {}, which is gone",
                provider.as_str()
            )));
        }
        for effect in found {
            match all.iter_mut().find(|it| it.part == effect.part) {
                Some(known) if known.class < effect.class => *known = effect,
                Some(_) => {}
                None => all.push(effect),
            }
        }
    }
    all.sort_by_key(|effect| std::cmp::Reverse(effect.class));
    Ok(all)
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
