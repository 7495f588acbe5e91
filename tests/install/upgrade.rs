//! An upgrade, and the way back, on real API servers: a build goes on with what another one has
//! made, no document changes, and no machine is replaced.
//!
//! `tests/install/upgrade/recorded` has the data of two clusters that an older build has served.
//! `UPDATE_RECORDING=1 cargo test --test install upgrade` records them again, by this build.
//! `OSM_OTHER=FILE cargo test --test install upgrade` also has another build serve before,
//! beside and after this one; `make upgrade FROM=COMMIT` builds that one.

use std::path::{Path, PathBuf};

#[cfg(test)]
mod site;

use site::Site;

/// This build.
const OSM: &str = env!("CARGO_BIN_EXE_osm");

#[tokio::test(flavor = "multi_thread")]
async fn what_an_older_build_has_made_is_served_on_and_no_document_changes() {
    if std::env::var_os("UPDATE_RECORDING").is_some() {
        let site = Site::fresh().await;
        let manager = site.serve(Path::new(OSM), "recorded").await;
        manager.stop().await;
        site.record().await;
    }
    let site = Site::recorded().await;
    let before = site.documents().await;
    assert_eq!(
        before.len(),
        12,
        "four of each machine deployment: {before:?}"
    );
    // Before anything is written: the gate of an upgrade.
    let verdicts = site.plan(Path::new(OSM)).await;
    let bad = ["Rotated", "Refused", "Unknown"];
    assert!(
        !verdicts.iter().any(|it| bad.contains(&&**it)),
        "{verdicts:?}"
    );
    let manager = site.serve(Path::new(OSM), "newer").await;
    assert_eq!(site.documents().await, before);
    let verdicts = site.plan(Path::new(OSM)).await;
    assert!(verdicts.iter().all(|it| it == "Unchanged"), "{verdicts:?}");
    manager.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_builds_serve_one_after_the_other_and_side_by_side() {
    let Some(other) = std::env::var_os("OSM_OTHER").map(PathBuf::from) else {
        println!("with this build alone: OSM_OTHER names no other one");
        return there_and_back(Path::new(OSM)).await;
    };
    there_and_back(&other).await;
    thin_profiles_are_kept(&other).await;
}

/// An older build may not know them: then it makes nothing of them, and this one goes on.
async fn thin_profiles_are_kept(other: &Path) {
    let this = Path::new(OSM);
    let site = Site::fresh().await;
    let before = site.serve(this, "this").await;
    let documents = site.documents().await;
    before.stop().await;
    let alone = site.try_to_serve(other, "other").await;
    assert_eq!(site.documents().await, documents, "by the other build");
    let beside = site.start(this, "this").await;
    alone.stop().await;
    site.is_served().await;
    assert_eq!(site.documents().await, documents, "by this build again");
    beside.stop().await;
}

/// Another build serves, then this one beside it, then this one alone, and the other one again.
async fn there_and_back(other: &Path) {
    let this = Path::new(OSM);
    let site = Site::fresh().await;
    let before = site.serve(other, "other").await;
    let documents = site.documents().await;
    let beside = site.join(this, "this").await;
    assert_eq!(site.documents().await, documents, "beside the other build");
    before.stop().await;
    site.is_served().await;
    assert_eq!(
        site.documents().await,
        documents,
        "taken over by this build"
    );
    beside.stop().await;
    let back = site.serve(other, "other").await;
    assert_eq!(
        site.documents().await,
        documents,
        "by the other build again"
    );
    back.stop().await;
}
