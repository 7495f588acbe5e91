//! Tests of the Secrets that are written.

use super::*;
use crate::api::names::{CONTENT, MADE_FOR_REVISION};
use crate::plan::{digest::Digest, provenance::Provenance};
use crate::tenant::secret_text::SecretBytes;

fn wanted(provenance: Option<Provenance>) -> SecretWanted {
    SecretWanted {
        name: "s".to_owned(),
        key: "k",
        data: SecretBytes::new(b"text".to_vec()),
        content: Digest::from_annotation("digest"),
        made_for: "kube-system/md".to_owned(),
        provenance,
        more_annotations: BTreeMap::new(),
    }
}

#[test]
fn every_secret_says_for_whom_it_was_made_and_only_documents_are_immutable() {
    let provenance = Provenance {
        revision: "2".to_owned(),
        made_for: "kube-system/md".to_owned(),
        ..Provenance::default()
    };
    let kept = ObjectMeta {
        annotations: Some(BTreeMap::from([(KEPT.to_owned(), "true".to_owned())])),
        ..ObjectMeta::default()
    };
    let document = secret(&wanted(Some(provenance)), kept.clone());
    let in_place = secret(&wanted(None), kept);
    for secret in [&document, &in_place] {
        assert_eq!(secret.annotations()[MADE_FOR], "kube-system/md");
        assert_eq!(secret.metadata.name.as_deref(), Some("s"));
        assert_eq!(secret.type_.as_deref(), Some("Opaque"));
        let data = secret.data.as_ref().unwrap();
        assert_eq!(data["k"].0, b"text");
    }
    assert_eq!(document.immutable, Some(true));
    assert_eq!(document.annotations()[MADE_FOR_REVISION], "2");
    assert_eq!(document.annotations()[CONTENT], "digest");
    let has = |secret: &Secret, key: &str| secret.annotations().contains_key(key);
    assert!(!has(&document, KEPT), "it has other bytes now");
    assert_eq!(in_place.immutable, None);
    assert!(!has(&in_place, MADE_FOR_REVISION));
}
