//! Holds the manifests to the program: what is generated must be what is committed.
//!
//! `UPDATE_MANIFESTS=1 cargo test --test manifests` writes the generated ones.

use std::{fs, path::Path};

use osm::cli::crds;

/// Set to rewrite what is generated, in place of comparing it.
const UPDATE: &str = "UPDATE_MANIFESTS";

#[test]
fn the_committed_crds_are_the_generated_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/crds");
    let mut files = Vec::new();
    for crd in crds::crds() {
        let file = folder.join(format!("{}.yaml", crd.spec.names.plural));
        let generated = crds::crd_yaml(&crd).unwrap();
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&file, &generated).unwrap();
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == generated,
            "{} is stale; set {UPDATE}=1",
            file.display()
        );
        files.push(file);
    }
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(
            files.contains(&path),
            "{} belongs to no kind",
            path.display()
        );
    }
}
