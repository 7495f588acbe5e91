//! Holds what makes the image to the program and to the manifests, without making it.

use std::{
    collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command,
};

use serde_json::Value;

use image::Image;

#[cfg(test)]
mod image;

const BUILD: &str = "manifests/image/build";
const SBOM: &str = "manifests/image/sbom";
const ARCHIVE: &str = "manifests/image/archive";

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(path).expect("the file is there")
}

/// The instructions of the Containerfile, each with its words.
fn instructions(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, words)| (name.to_owned(), words.to_owned()))
        .collect()
}

/// What follows a mark on each of its lines, without quotes.
fn after<'a>(text: &'a str, mark: &'a str) -> BTreeSet<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(mark))
        .map(|(_, rest)| rest.trim_matches('"'))
        .collect()
}

#[test]
fn the_image_is_two_folders_of_what_the_scripts_make_and_runs_as_the_pod_does() {
    let base = read("manifests/kustomize/base/deployment.yaml");
    let pod: Value = serde_saphyr::from_str(&base).expect("it is an object");
    let pod = &pod["spec"]["template"]["spec"]["securityContext"];
    let user = format!("{}:{}", pod["runAsUser"], pod["runAsGroup"]);
    let expected = [
        ("FROM", "scratch"),
        ("ARG", "TARGETARCH"),
        ("COPY", "${TARGETARCH}/bin/ /usr/local/bin/"),
        ("COPY", "${TARGETARCH}/doc/ /usr/share/doc/osm/"),
        ("USER", &user),
        ("ENTRYPOINT", "[\"/usr/local/bin/osm\"]"),
    ];
    let found = instructions(&read("manifests/image/Containerfile"));
    let found: Vec<_> = found.iter().map(|(name, it)| (&**name, &**it)).collect();
    assert_eq!(found, expected);
    assert!(read(BUILD).contains("\"$2/bin\""), "{BUILD} fills bin");
    assert!(read(SBOM).contains("folder / \"doc\""), "{SBOM} fills doc");
}

#[test]
fn every_name_that_the_program_answers_to_is_a_link_in_the_image() {
    let program = read("src/cli/drop_in.rs");
    let names: BTreeSet<&str> = program
        .lines()
        .filter_map(|line| line.trim().split_once(" => Program::"))
        .map(|(name, _)| name.trim_matches('"'))
        .collect();
    assert!(names.contains("osm-controller"), "{names:?}");
    assert_eq!(after(&read(BUILD), "ln -sf osm \"$out/"), names);
}

#[test]
fn each_architecture_has_one_target_in_every_script_and_others_are_refused() {
    let (build, sbom) = (read(BUILD), read(SBOM));
    for (architecture, processor) in [("amd64", "x86_64"), ("arm64", "aarch64")] {
        let target = format!("{processor}-unknown-linux-musl");
        assert!(build.contains(&format!("{architecture}) target={target} ;;")));
        assert!(sbom.contains(&format!("\"{architecture}\": \"{target}\"")));
    }
    let release = read("manifests/image/release");
    let loops = release.matches("for arch in amd64 arm64; do").count();
    assert_eq!(loops, release.matches("for arch").count());
    let folder = tempfile::tempdir().expect("there is room");
    for script in [BUILD, SBOM] {
        let refused = run(script, "riscv64", folder.path());
        assert!(
            refused.contains("say amd64 or arm64"),
            "{script}: {refused}"
        );
    }
    let left = fs::read_dir(folder.path()).expect("it is there").count();
    assert_eq!(left, 0, "nothing was begun");
}

/// Runs a script that must fail, and hands out why it did.
#[expect(
    clippy::disallowed_methods,
    reason = "our own script with our own words"
)]
fn run(script: &str, architecture: &str, folder: &Path) -> String {
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
        .arg(architecture)
        .arg(folder)
        .output()
        .expect("it can be run");
    assert!(!output.status.success(), "{script}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "our own script with our own words"
)]
fn an_archive_is_the_image_of_the_containerfile_and_two_of_them_are_equal() {
    let folder = tempfile::tempdir().expect("there is room");
    let (bin, doc) = (
        folder.path().join("amd64/bin"),
        folder.path().join("amd64/doc"),
    );
    for folder in [&bin, &doc] {
        fs::create_dir_all(folder).expect("there is room");
    }
    fs::write(bin.join("osm"), "program").expect("there is room");
    fs::set_permissions(bin.join("osm"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    std::os::unix::fs::symlink("osm", bin.join("webhook")).expect("there is room");
    fs::write(doc.join("LICENSE"), "terms").expect("there is room");
    let name = "localhost/operating-system-manager:0.1.0";
    let make = |file: &str| {
        let file = folder.path().join(file);
        let made = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(ARCHIVE))
            .arg("amd64")
            .arg(folder.path())
            .arg(name)
            .arg(&file)
            .output()
            .expect("it can be run");
        assert!(made.status.success(), "{made:?}");
        (fs::read(file).expect("it is made"), made.stdout)
    };
    let (archive, printed) = make("first.tar");
    assert_eq!(make("second.tar").0, archive);

    let first = folder.path().join("first.tar");
    let image = Image::unpack(&first, folder.path()).expect("it is an image");
    assert_eq!(image.name, name);
    let index = fs::read_to_string(folder.path().join("layout/index.json"));
    let index: Value = serde_json::from_str(&index.expect("it is there")).expect("it is JSON");
    let digest = &index["manifests"][0]["digest"];
    assert_eq!(*digest, String::from_utf8_lossy(&printed).trim());
    let containerfile = instructions(&read("manifests/image/Containerfile"));
    let said = |word: &str| {
        let found = containerfile.iter().find(|(name, _)| name == word);
        found.map(|(_, words)| words.as_str()).expect("it is said")
    };
    assert_eq!(image.config["User"], said("USER"));
    assert_eq!(image.config["Entrypoint"].to_string(), said("ENTRYPOINT"));
    let root = &image.root;
    let program = root.join("usr/local/bin/osm");
    let mode = fs::metadata(&program).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o755);
    let link = fs::read_link(root.join("usr/local/bin/webhook")).expect("it is a link");
    assert_eq!(link, Path::new("osm"));
    let terms = fs::read_to_string(root.join("usr/share/doc/osm/LICENSE"));
    assert_eq!(terms.expect("it is there"), "terms");
}

#[test]
fn the_page_of_releases_names_the_tools_and_files_that_the_scripts_have() {
    let page = read("docs/release.md");
    let sbom = read(SBOM);
    let tool = after(&sbom, "TOOL = \"").into_iter().next();
    let tool = tool.expect("it pins the tool");
    assert!(page.contains(&format!("cargo-cyclonedx {tool}")), "{tool}");
    let zig = read("manifests/image/zig.txt");
    let zig = after(&zig, "ziglang==").into_iter().next();
    let zig = zig.and_then(|it| it.split_whitespace().next());
    let zig = zig.expect("it pins the compiler");
    assert!(page.contains(&format!("Zig {zig}")), "{zig}");
    for file in [
        "osm.cdx.json",
        "licenses.txt",
        "rust-library.html",
        "LICENSE",
    ] {
        assert!(page.contains(file) && sbom.contains(file), "{file}");
    }
}
