//! The hash of a machine deployment's annotations. The objects of existing fleets carry it. If its
//! bytes changed, an upgrade of the manager would rotate everything.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::go_json;

/// Returns the lower-case hex SHA-256 of the annotations as Go encodes them in JSON. `None` is Go's
/// nil map, which is encoded as `null`.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use osm_render::annotation_hash::annotation_hash;
///
/// let none = annotation_hash(None);
/// assert!(none.starts_with("74234e98afe7498f"), "sha256 of `null`");
/// assert_ne!(none, annotation_hash(Some(&BTreeMap::new())), "an empty map is not null");
/// ```
pub fn annotation_hash(annotations: Option<&BTreeMap<String, String>>) -> String {
    hex::encode(Sha256::digest(go_map(annotations)))
}

/// Encodes a map as Go does. Rust strings are UTF-8 and a `BTreeMap` sorts them bytewise, as Go's
/// encoder does.
fn go_map(annotations: Option<&BTreeMap<String, String>>) -> String {
    let Some(annotations) = annotations else {
        return "null".to_owned();
    };
    let mut out = String::from("{");
    for (index, (key, value)) in annotations.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        go_json::push_string(&mut out, key);
        out.push(':');
        go_json::push_string(&mut out, value);
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use osm_api::names::{PROFILE, REVISION};

    const KUBELET: &str = "v1.kubelet-config.machine-controller.kubermatic.io/";

    fn annotations(profile: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            (REVISION.to_owned(), "1".to_owned()),
            (PROFILE.to_owned(), profile.to_owned()),
        ])
    }

    #[test]
    fn the_hash_is_the_one_that_fleets_carry_today() {
        let check = |profile: &str, expected: &str| {
            assert_eq!(
                annotation_hash(Some(&annotations(profile))),
                expected,
                "{profile}"
            );
        };
        check(
            "osp-ubuntu",
            "240e92a138b73a540fc8f38a171c511995e6c10890b9af15f92f5a8b84136765",
        );
        check(
            "osp-flatcar",
            "bf61b23ba898e84e3e68ad8c36694f70e7fd3e3f3b8e69ac1ffc129bd38a0046",
        );
        check(
            "osp-rhel",
            "80765e800a0186ae20232d6afa4b9a64163e5adbbc2c66ec9fb134f64fc7ed79",
        );
        check(
            "osp-rhel-cloud-init-modules",
            "4f7979f79c658b81c59f77f3f57073f57df2943d79f6a6821fc871b5f608e09c",
        );
    }

    #[test]
    fn characters_that_go_escapes_for_html_are_hashed_escaped() {
        let mut annotations = annotations("osp-ubuntu");
        for (name, value) in [
            ("ContainerLogMaxSize", "300Mi"),
            ("ContainerLogMaxFiles", "30"),
            ("MaxPods", "110"),
            ("SystemReserved", "ephemeral-storage=30Gi,cpu=30m"),
            ("KubeReserved", "ephemeral-storage=30Gi,cpu=30m"),
            ("EvictionHard", "memory.available<30Mi"),
        ] {
            annotations.insert(format!("{KUBELET}{name}"), value.to_owned());
        }
        assert_eq!(
            annotation_hash(Some(&annotations)),
            "db7ff021c8a496bfbf5511482e26a4a4039c99d745d9360c3d518f26f3b6ee2c"
        );
    }

    #[test]
    fn no_map_and_an_empty_map_differ() {
        assert_ne!(
            annotation_hash(None),
            annotation_hash(Some(&BTreeMap::new()))
        );
        assert_eq!(annotation_hash(None), hex::encode(Sha256::digest(b"null")));
    }
}
