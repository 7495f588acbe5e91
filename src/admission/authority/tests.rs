use std::sync::Arc;

use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::ring,
    pki_types::{ServerName, UnixTime},
};

use super::*;

const HOST: &str = "webhook.osm.svc";

fn start() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn hosts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the bundle after the next step.
fn step(
    kept: Option<&CertificateBundle>,
    hosts: &[String],
    now: Timestamp,
    trust: Trust,
) -> Option<CertificateBundle> {
    next(kept, &Wanted { hosts, now, trust }).unwrap()
}

/// Returns true if a client that trusts these authorities accepts this certificate.
fn is_accepted(authorities: &str, certificate: &str, now: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(der.unwrap()).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let since_epoch = Duration::from_secs(now.as_second().unsigned_abs());
    let at = UnixTime::since_unix_epoch(since_epoch);
    let name = ServerName::try_from(HOST).unwrap();
    let verifier = verifier.build().unwrap();
    verifier
        .verify_server_cert(&certificate, &[], &name, &[], at)
        .is_ok()
}

#[test]
fn over_decades_every_replica_is_trusted_at_every_step() {
    let hosts = hosts(&[HOST]);
    let mut kept = step(None, &hosts, start(), Trust::Pending).unwrap();
    let mut trusted = [kept.authorities.clone(), kept.authorities.clone()];
    let mut shown = [kept.clone(), kept.clone()];
    let (mut renewals, mut authorities) = (0, 1);
    for day in 1..16 * 365_u32 {
        let now = start() + DAY * day;
        // Two replicas look one after the other, and either may be late by a day.
        for replica in [0, 1] {
            let [latest, _] = &trusted;
            let trust = if *latest == kept.authorities {
                Trust::InPlace
            } else {
                Trust::Pending
            };
            if let Some(made) = step(Some(&kept), &hosts, now, trust) {
                renewals += u32::from(made.certificate != kept.certificate);
                authorities += u32::from(made.authority_key != kept.authority_key);
                kept = made;
            }
            if trusted[0] != kept.authorities {
                // API servers may still read the configuration of before.
                trusted = [kept.authorities.clone(), trusted[0].clone()];
            }
            shown[replica] = kept.clone();
            for (shown, trusted) in shown.iter().zip(&trusted) {
                let accepted = is_accepted(trusted, &shown.certificate, now);
                assert!(accepted, "day {day}, replica {replica}");
            }
        }
        trusted[1] = trusted[0].clone();
    }
    assert!((90..110).contains(&renewals), "{renewals} in 16 years");
    assert_eq!(authorities, 3);
    let left = CertificateDer::pem_slice_iter(kept.authorities.as_bytes()).count();
    assert!(
        left <= 2,
        "authorities that have ended are not kept: {left}"
    );
}

#[test]
fn valid_certificates_are_kept_and_others_are_recreated() {
    let hosts = hosts(&[HOST]);
    let kept = step(None, &hosts, start(), Trust::Pending).unwrap();
    assert_eq!(step(Some(&kept), &hosts, start(), Trust::Pending), None);
    assert_eq!(
        CertificateBundle::from_data(&kept.to_data()),
        Some(kept.clone())
    );
    let other = step(None, &hosts, start() + DAY, Trust::Pending).unwrap();
    let broken: [fn(&mut CertificateBundle, &CertificateBundle); 4] = [
        |kept, _| kept.authorities = "none".to_owned(),
        |kept, other| kept.authority_key.clone_from(&other.authority_key),
        |kept, _| kept.certificate = String::new(),
        |kept, other| kept.key.clone_from(&other.key),
    ];
    for (number, breaks) in broken.into_iter().enumerate() {
        let mut broken = kept.clone();
        breaks(&mut broken, &other);
        let made = step(Some(&broken), &hosts, start(), Trust::InPlace);
        let made = made.unwrap_or_else(|| panic!("{number} is broken"));
        assert!(is_accepted(&made.authorities, &made.certificate, start()));
    }
    let mut data = kept.to_data();
    data.remove("ca.key");
    assert_eq!(CertificateBundle::from_data(&data), None);
}

#[test]
fn other_hosts_get_another_certificate_of_the_same_authority() {
    let kept = step(None, &hosts(&["127.0.0.1"]), start(), Trust::Pending).unwrap();
    assert!(!is_accepted(&kept.authorities, &kept.certificate, start()));
    let both = hosts(&[HOST, "127.0.0.1"]);
    let made = step(Some(&kept), &both, start(), Trust::Pending).unwrap();
    assert_eq!(made.authorities, kept.authorities);
    assert!(is_accepted(&made.authorities, &made.certificate, start()));
    let order = hosts(&["127.0.0.1", HOST]);
    assert_eq!(step(Some(&made), &order, start(), Trust::Pending), None);
}

#[test]
fn a_new_authority_signs_nothing_before_it_is_trusted() {
    let hosts = hosts(&[HOST]);
    let kept = step(None, &hosts, start(), Trust::Pending).unwrap();
    let late = start() + DAY * 2_500;
    let rotated = step(Some(&kept), &hosts, late, Trust::InPlace).unwrap();
    assert_eq!(rotated.certificate, kept.certificate);
    assert!(rotated.authorities.ends_with(&kept.authorities));
    // The one of before has ended meanwhile: waiting would help nobody.
    let made = step(Some(&rotated), &hosts, late, Trust::Pending).unwrap();
    assert_ne!(made.certificate, kept.certificate);
    // Where it has not, the old one is shown until the new authority is trusted.
    let renewed = step(Some(&kept), &hosts, late - DAY * 100, Trust::InPlace).unwrap();
    let rotated = step(Some(&renewed), &hosts, late - DAY * 20, Trust::InPlace).unwrap();
    for (now, trust, signs) in [
        (late - DAY * 20, Trust::InPlace, false),
        (late - DAY * 17, Trust::Pending, false),
        (late - DAY * 17, Trust::InPlace, true),
    ] {
        let made = step(Some(&rotated), &hosts, now, trust);
        assert_eq!(made.is_some(), signs, "{now} {trust:?}");
    }
}
