//! The default profiles: what is committed is what their sources say, and no content changes
//! under a version that already exists. `UPDATE_PROFILES=1 cargo test --test shape profiles`
//! rewrites the committed files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use osm::{
    api::profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
    render::{default_profiles::default_profiles, template::CompiledProfile},
};
use sha2::{Digest, Sha256};

/// The line that a source gives its place up with, to a file of `src/`. Words behind ` with ` are
/// `name=value`: the joined file, and what it joins, may say `{name}` in the paths they join.
const JOIN: &str = "# join: ";

/// Joined files may join others, but a circle must end.
const JOIN_DEPTH_MAX: usize = 5;

#[test]
fn a_committed_profile_is_what_its_sources_say() {
    let shipped = default_profiles().iter().map(|it| it.name);
    assert_eq!(shipped.collect::<Vec<_>>(), source_names());
    for name in source_names() {
        let built = build(&name);
        let committed = folder().join(format!("{name}.yaml"));
        if is_update() {
            fs::write(&committed, &built).expect("the profile's file is writable");
        }
        let found = fs::read_to_string(&committed).unwrap_or_default();
        assert!(
            found == built,
            "{} is stale: UPDATE_PROFILES=1 cargo test --test shape profiles",
            committed.display()
        );
    }
}

#[test]
fn content_does_not_change_under_a_version_that_exists() {
    let file = folder().join("digests.txt");
    let mut text = fs::read_to_string(&file).unwrap_or_default();
    let known = known_digests(&text);
    for name in source_names() {
        let built = build(&name);
        let spec = parse(&built).spec;
        let compiled = CompiledProfile::compile(&spec).expect("a default profile compiles");
        let release = (name.clone(), spec.version);
        let digest = hex::encode(Sha256::digest(built.as_bytes()));
        let digest = format!("{digest} {}", compiled.digest());
        match known.get(&release) {
            Some(known) => assert_eq!(
                *known, digest,
                "{name} changed, but is still {}: raise spec.version in its source",
                release.1
            ),
            None if is_update() => {
                writeln!(text, "{name} {} {digest}", release.1).expect("a text is writable");
                fs::write(&file, &text).expect("the list of digests is writable");
            }
            None => panic!("{name} {} is new: UPDATE_PROFILES=1", release.1),
        }
    }
}

#[test]
fn a_shipped_profile_is_recognized_by_its_digest() {
    let is_shipped = |spec: &OperatingSystemProfileSpec| {
        let compiled = CompiledProfile::compile(spec).expect("it is a default profile, nearly");
        compiled.is_shipped()
    };
    for default in default_profiles() {
        let mut spec = parse(default.yaml).spec;
        assert!(is_shipped(&spec), "{}", default.name);
        // Definitions of others drop what they do not know.
        spec.template_language = None;
        assert!(is_shipped(&spec), "{} without its language", default.name);
        spec.os_version.push('1');
        assert!(!is_shipped(&spec), "{} with a change", default.name);
    }
}

/// Overlays fill these templates, which are empty here.
#[test]
fn every_profile_has_the_places_for_additions_and_runs_each_once() {
    for name in source_names() {
        let spec = parse(&build(&name)).spec;
        for (half, places) in [
            (spec.bootstrap_config, ["after-bootstrap"].as_slice()),
            (
                spec.provisioning_config,
                &["before-packages", "after-packages", "before-kubelet"],
            ),
        ] {
            assert!(half.templates.contains_key("artefacts"), "{name}");
            let texts = half.files.into_iter().map(|file| file.content.inline);
            let texts: Vec<_> = texts.flatten().map(|inline| inline.data).collect();
            let texts = texts.concat();
            for place in places {
                let empty = half.templates.get(*place).map(String::as_str);
                assert_eq!(empty, Some(""), "{name}: {place}");
                let include = format!("{{% include \"{place}\" %}}");
                assert_eq!(texts.matches(&include).count(), 1, "{name}: {place}");
            }
        }
    }
}

/// One object of the cluster holds a profile whole, and every tenant has its own copy.
#[test]
fn a_profile_is_small() {
    for name in source_names() {
        let bytes = build(&name).len();
        assert!(bytes <= 60_000, "{name}: {bytes} bytes");
    }
}

#[test]
fn every_variable_of_the_profiles_stands_in_their_readme() {
    let readme = fs::read_to_string(folder().join("README.md")).expect("the page is readable");
    let (_, section) = readme
        .split_once("## What profiles read")
        .expect("it is there");
    let (section, _) = section.split_once("\n## ").expect("another follows");
    let rows: BTreeSet<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(name, _)| name)
        .collect();
    let mut read = BTreeSet::new();
    for name in source_names() {
        let built = build(&name);
        read.extend(built.split("variables.").skip(1).map(|rest| {
            let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric());
            rest[..end.unwrap_or(rest.len())].to_owned()
        }));
    }
    let read: BTreeSet<&str> = read.iter().map(String::as_str).collect();
    assert_eq!(read, rows);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/profiles")
}

/// The names of the profiles that have a source, in order.
fn source_names() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder().join("src"))
        .expect("the sources' folder is readable")
        .map(|entry| entry.expect("a folder entry is readable").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no profile has a source");
    names
}

fn build(name: &str) -> String {
    join(&format!("{name}.yaml"), &[], JOIN_DEPTH_MAX)
}

/// The file's text, with the named file in place of each line that asks for one, indented as it.
fn join(path: &str, values: &[(&str, &str)], depth: usize) -> String {
    assert!(depth > 0, "{path} is joined in a circle");
    let source = folder().join("src").join(path);
    let text = fs::read_to_string(&source);
    assert!(text.is_ok(), "{} cannot be read", source.display());
    let text = text.unwrap_or_default();
    let mut joined = String::with_capacity(text.len());
    for line in text.lines() {
        let content = line.trim_start();
        let (indentation, _) = line.split_at(line.len() - content.len());
        let part = match content.strip_prefix(JOIN) {
            Some(wanted) => join_wanted(wanted, values, depth - 1),
            None => content.to_owned(),
        };
        for line in part
            .split_terminator('\n')
            .chain(part.is_empty().then_some(""))
        {
            if !line.is_empty() {
                joined.push_str(indentation);
                joined.push_str(line);
            }
            joined.push('\n');
        }
    }
    joined
}

/// The file that a line wants, and the values that it gives it.
fn join_wanted(wanted: &str, values: &[(&str, &str)], depth: usize) -> String {
    let (path, given) = wanted.split_once(" with ").unwrap_or((wanted, ""));
    let path = values
        .iter()
        .fold(path.trim().to_owned(), |path, (name, value)| {
            path.replace(&format!("{{{name}}}"), value)
        });
    let mut values = values.to_vec();
    values.extend(
        given
            .split_whitespace()
            .map(|word| word.split_once('=').expect("what is given is `name=value`")),
    );
    join(&path, &values, depth)
}

fn parse(text: &str) -> OperatingSystemProfile {
    serde_saphyr::from_str(text).expect("a built profile is a profile")
}

/// The digests by name and version.
fn known_digests(text: &str) -> BTreeMap<(String, String), String> {
    text.lines()
        .map(|line| {
            let [name, version, digest] = line
                .splitn(3, ' ')
                .collect::<Vec<_>>()
                .try_into()
                .expect("a line has a name, a version and digests");
            ((name.to_owned(), version.to_owned()), digest.to_owned())
        })
        .collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test is told by the environment to rewrite"
)]
fn is_update() -> bool {
    std::env::var("UPDATE_PROFILES").is_ok()
}
