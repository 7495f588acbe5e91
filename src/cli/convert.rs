//! `osm convert`: rewrites a profile in Go's template language in Jinja.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use serde_json::Value;

use super::{
    input::{profile_object, profile_text},
    output,
};
use crate::api::profile::OperatingSystemProfileSpec;
use crate::render::convert::{Comparison, compare, convert};

/// The number of samples that both forms are rendered with. Each has new values, and together they
/// take about a second.
const SAMPLES: u64 = 500;

/// The maximum number of differences that are printed.
const DIFFERENCES_MAX: usize = 10;

/// The flags of `osm convert`.
#[derive(clap::Args, Debug)]
pub struct ConvertFlags {
    /// The profile: a file of YAML or JSON, `-` for stdin, or the name of a default profile.
    profile: String,
    /// Write the converted profile to this file instead of to stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write nothing: render both forms with sample machine deployments, and report whether the
    /// bytes are equal.
    #[arg(long)]
    check: bool,
}

pub(super) fn run(flags: &ConvertFlags) -> anyhow::Result<ExitCode> {
    let name = &flags.profile;
    let (object, profile) = profile_object(name, &profile_text(name)?)?;
    let converted = match convert(&profile.spec) {
        Ok(converted) => converted,
        Err(refusal) => {
            output::message(&format!("{name} cannot be converted: {refusal}"));
            return Ok(output::ERROR);
        }
    };
    if flags.check {
        return report(&compare(&profile.spec, &converted, SAMPLES)?);
    }
    let yaml = written(object, &converted)?;
    match &flags.output {
        Some(path) => output::write_file(path, yaml.as_bytes())?,
        None => output::document(yaml)?,
    }
    Ok(output::SUCCESS)
}

fn report(comparison: &Comparison) -> anyhow::Result<ExitCode> {
    let Comparison {
        equal,
        refused,
        different,
    } = comparison;
    for (sample, problem) in different.iter().take(DIFFERENCES_MAX) {
        output::message(&format!("sample {sample}: {problem}"));
    }
    if !different.is_empty() {
        let count = different.len();
        output::message(&format!(
            "the two forms differ for {count} of {SAMPLES} sample machine deployments"
        ));
        return Ok(output::found());
    }
    if *equal == 0 {
        output::message(&format!(
            "both forms fail for each of {SAMPLES} sample machine deployments, so nothing was \
             compared"
        ));
        return Ok(output::ERROR);
    }
    output::lines([format!(
        "equal: both forms render the same bytes for {equal} sample machine deployments, and both \
         fail for {refused}"
    )])?;
    Ok(output::SUCCESS)
}

/// Returns the object as YAML with the converted templates. Everything else is unchanged, in its
/// order.
fn written(mut object: Value, converted: &OperatingSystemProfileSpec) -> anyhow::Result<String> {
    let spec = object
        .get_mut("spec")
        .context("the profile has no `spec`")?;
    let converted = serde_json::to_value(converted)?;
    replace_texts(spec, &converted);
    if let (Value::Object(spec), Some(language)) = (spec, converted.get("templateLanguage")) {
        spec.remove("templateLanguage");
        let version = spec.keys().position(|key| key == "version");
        let at = version.map_or(spec.len(), |at| at + 1);
        spec.shift_insert(at, "templateLanguage".to_owned(), language.clone());
    }
    // Long lines are lines of scripts, which must not be folded.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    let yaml = output::yaml(&object, options)?;
    // Spaces on an empty line are indentation, unless a text has more of them.
    let lines = yaml.lines().map(|line| {
        if line.trim_matches(' ').is_empty() {
            ""
        } else {
            line
        }
    });
    let plain: String = lines.flat_map(|line| [line, "\n"]).collect();
    for yaml in [plain, yaml] {
        if serde_saphyr::from_str::<Value>(&yaml).is_ok_and(|reread| reread == object) {
            return Ok(yaml);
        }
    }
    bail!("YAML does not keep one of the profile's texts")
}

/// Replaces the texts that differ.
fn replace_texts(object: &mut Value, converted: &Value) {
    match (object, converted) {
        (Value::Object(fields), Value::Object(converted)) => {
            for (name, field) in fields {
                if let Some(converted) = converted.get(name) {
                    replace_texts(field, converted);
                }
            }
        }
        (Value::Array(items), Value::Array(converted)) => {
            for (item, converted) in items.iter_mut().zip(converted) {
                replace_texts(item, converted);
            }
        }
        (Value::String(text), Value::String(converted)) => text.clone_from(converted),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::profile::OperatingSystemProfile;

    #[test]
    fn the_object_keeps_its_order_and_texts_of_many_lines_are_blocks() {
        let yaml = "apiVersion: operatingsystemmanager.k8c.io/v1alpha1
kind: OperatingSystemProfile
metadata:
  name: osp-example
  labels:
    b: \"1\"
    a: x
spec:
  version: v1.0.0
  osVersion: \"24.04\"
  osName: ubuntu
  supportedCloudProviders:
  - name: aws
  provisioningConfig:
    files:
    - path: /f
      permissions: 644
      content:
        inline:
          data: |
            a {{ .KubeVersion }} of a line that is longer than eighty characters, and so not folded

              b
  bootstrapConfig: {}
";
        let object: Value = serde_saphyr::from_str(yaml).unwrap();
        let profile: OperatingSystemProfile = serde_json::from_value(object.clone()).unwrap();
        let converted = convert(&profile.spec).unwrap();
        let expected = yaml
            .replace("v1.0.0\n", "v1.0.0+jinja\n  templateLanguage: Jinja\n")
            .replace("{{ .KubeVersion }}", "{{ KubeVersion }}");
        assert_eq!(written(object, &converted).unwrap(), expected);
    }
}
