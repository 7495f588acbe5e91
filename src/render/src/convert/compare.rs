//! Renders both forms of a profile with samples, and compares the results.

use super::samples::Sample;
use crate::{Limits, RenderError, Rendered, render, template::CompiledProfile};
use osm_api::profile::OperatingSystemProfileSpec;

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The number of samples for which both forms render the same bytes.
    pub equal: usize,
    /// The number of samples that both forms refuse.
    pub refused: usize,
    /// The differences, by the sample's number.
    pub different: Vec<(u64, String)>,
}

/// Renders two profiles with this many samples, and compares configs and documents.
///
/// # Errors
///
/// One of the two cannot be rendered.
pub fn compare(
    source: &OperatingSystemProfileSpec,
    converted: &OperatingSystemProfileSpec,
    samples: u64,
) -> Result<Comparison, RenderError> {
    let profiles = [
        CompiledProfile::compile(source)?,
        CompiledProfile::compile(converted)?,
    ];
    let mut comparison = Comparison::default();
    for seed in 0..samples {
        let sample = Sample::draw(seed, source);
        let outcomes = profiles
            .each_ref()
            .map(|profile| render(&sample.input(profile), &Limits::default()));
        match &outcomes {
            [Ok(left), Ok(right)] => match difference(left, right) {
                None => comparison.equal += 1,
                Some(place) => comparison.different.push((seed, place)),
            },
            [Err(_), Err(_)] => comparison.refused += 1,
            [Ok(_), Err(error)] => {
                let problem = format!("the converted one fails: {error}");
                comparison.different.push((seed, problem));
            }
            [Err(error), Ok(_)] => {
                let problem = format!("the profile as it stood fails: {error}");
                comparison.different.push((seed, problem));
            }
        }
    }
    Ok(comparison)
}

/// Returns the first place where two results differ. Nothing is quoted, because rendered text may
/// contain secrets.
fn difference(left: &Rendered, right: &Rendered) -> Option<String> {
    let halves = |rendered: &Rendered| {
        let config = rendered.config.clone();
        [config.bootstrap_config, config.provisioning_config]
    };
    for (left, right) in halves(left).iter().zip(&halves(right)) {
        for (left, right) in left.files.iter().zip(&right.files) {
            if left != right {
                return Some(format!("file `{}` differs", left.path));
            }
        }
    }
    let is_equal = left == right;
    (!is_equal).then(|| "the documents, or the configs as they are stored, differ".to_owned())
}
