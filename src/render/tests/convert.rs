//! Profiles in Go's language and what they become in Jinja: the same bytes.

use super::{
    super::{
        convert::{ConvertError, convert},
        fixtures::World,
    },
    go_templates::{Case, PROFILES, Profile, TEMPLATES, a_go_world},
    *,
};

/// A profile with one file, in an encoding that any text fits into, and named templates.
fn a_go_profile(templates: &[(&str, &str)], file: &str) -> World {
    let mut world = a_go_world();
    let mut entry = a_file("/f", file);
    if let Some(inline) = &mut entry.content.inline {
        inline.encoding = Some("b64".to_owned());
    }
    let half = &mut world.profile.provisioning_config;
    half.files = vec![entry];
    half.templates = templates
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect();
    world
}

/// The file in Jinja, and what it renders to.
fn converted(mut world: World) -> Result<(String, Result<String, RenderError>), ConvertError> {
    world.profile = convert(&world.profile)?;
    let source = data(&world.profile.provisioning_config.files[0]);
    let rendered = world.render();
    let text = rendered.map(|rendered| data(&rendered.config.provisioning_config.files[0]));
    Ok((source, text))
}

/// What became of many templates.
#[derive(Debug, Default)]
struct Tally {
    idiomatic: usize,
    with_go_functions: usize,
    refused: Vec<String>,
    /// Templates that Go itself refuses when it reads them.
    unreadable: usize,
    wrong: Vec<String>,
}

impl Tally {
    fn add(&mut self, world: World, wanted: Option<&str>) {
        let name = data(&world.profile.provisioning_config.files[0]);
        let (source, text) = match converted(world) {
            Ok(converted) => converted,
            Err(ConvertError::Source(_)) => {
                self.unreadable += 1;
                return;
            }
            Err(ConvertError::Result(error)) => {
                self.wrong.push(format!("{name}\n  {error}"));
                return;
            }
            Err(error) => {
                self.refused.push(format!("{name}\n  {error}"));
                return;
            }
        };
        if text.as_deref().ok() != wanted {
            self.wrong.push(format!(
                "{name}\n  {source}\n  wanted {wanted:?}\n  found  {text:?}"
            ));
        }
        if source.contains("go_") {
            self.with_go_functions += 1;
        } else {
            self.idiomatic += 1;
        }
    }
}

#[test]
fn templates_render_in_jinja_as_go_renders_them() {
    let cases: Vec<Case> = serde_json::from_str(TEMPLATES).unwrap();
    let mut tally = Tally::default();
    for case in &cases {
        let wanted = (!case.failed).then_some(case.output.as_str());
        tally.add(a_go_profile(&[], &case.template), wanted);
    }
    assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
    eprintln!("{} {} {}", tally.idiomatic, tally.with_go_functions, tally.unreadable);
    eprintln!("{}", tally.refused.join("\n"));
}

#[test]
fn named_templates_render_in_jinja_as_go_renders_them() {
    let profiles: Vec<Profile> = serde_json::from_str(PROFILES).unwrap();
    let mut tally = Tally::default();
    for profile in &profiles {
        let wanted = (!profile.failed).then_some(profile.output.as_str());
        let templates: Vec<(&str, &str)> = profile
            .templates
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        tally.add(a_go_profile(&templates, &profile.file), wanted);
    }
    assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
    eprintln!("{} {} {}", tally.idiomatic, tally.with_go_functions, tally.unreadable);
    eprintln!("{}", tally.refused.join("\n"));
}
