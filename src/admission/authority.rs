//! Certificates of our own: an authority that signs for the webhooks and for nothing else, and a
//! certificate for the server.
//!
//! Pure but for the keys that it draws: what is kept, and the time, give what is to be kept next.
//! A server's certificate is signed by a new authority only after every configuration has trusted
//! it for a day, and the old authority stays trusted until it ends. Replicas, and API servers, may
//! therefore be one step apart.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    time::Duration,
};

use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _,
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use x509_parser::{extensions::GeneralName, prelude::X509Certificate};

const DAY: Duration = Duration::from_hours(24);
/// Long: its end is met by two writes of each configuration.
const AUTHORITY_DAYS: u32 = 3_650;
/// Short: its end is met by a write of the Secret.
const SERVER_DAYS: u32 = 90;
/// API servers read a changed configuration within seconds. Counted from the day before the
/// authority was made, since that is where it begins.
const SETTLED_DAYS: u32 = 3;
const NAME: &str = "operating-system-manager-webhook";

const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The content of the Secret, all of it PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateBundle {
    /// The authorities that are trusted, the newest first.
    pub authorities: String,
    /// The key of the newest authority.
    pub authority_key: String,
    /// The server's certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl fmt::Debug for CertificateBundle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CertificateBundle")
    }
}

impl CertificateBundle {
    /// Reads the data of a Secret; `None` if a part is missing.
    pub fn from_data(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
        Some(Self {
            authorities: text(AUTHORITIES)?,
            authority_key: text(AUTHORITY_KEY)?,
            certificate: text(CERTIFICATE)?,
            key: text(KEY)?,
        })
    }

    /// The data of a Secret.
    pub fn to_data(&self) -> BTreeMap<String, ByteString> {
        let parts = [
            (AUTHORITIES, &self.authorities),
            (AUTHORITY_KEY, &self.authority_key),
            (CERTIFICATE, &self.certificate),
            (KEY, &self.key),
        ];
        let parts = parts.into_iter();
        parts
            .map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())))
            .collect()
    }
}

/// How far the webhook configurations trust the stored authorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It does.
    InPlace,
    /// It will.
    Pending,
}

/// The purpose of a certificate.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The names and addresses that API servers call the server by.
    pub hosts: &'a [String],
    /// The time of day.
    pub now: Timestamp,
    /// How far the webhook configurations trust the stored authorities.
    pub trust: Trust,
}

/// Returns the bundle that replaces the stored one; `None` if that is still good.
///
/// # Errors
///
/// A key or a certificate cannot be created.
pub fn next(
    kept: Option<&CertificateBundle>,
    wanted: &Wanted<'_>,
) -> Result<Option<CertificateBundle>, rcgen::Error> {
    let known = kept.and_then(|kept| Some((kept, Known::read(kept)?)));
    let Some((kept, known)) = known else {
        return fresh(wanted).map(Some);
    };
    let now = wanted.now;
    if known.newest.is_due(now) {
        let (authority, key) = make_authority(now)?;
        let good = known.good_authorities(now);
        return Ok(Some(CertificateBundle {
            authorities: format!("{authority}{good}"),
            authority_key: key.serialize_pem(),
            ..kept.clone()
        }));
    }
    let server = &known.server;
    let is_of_newest = server.issuer == known.newest.subject;
    let hosts: BTreeSet<String> = wanted.hosts.iter().cloned().collect();
    let is_wanted = server.is_due(now) || known.hosts != hosts || !is_of_newest;
    let is_settled = now
        >= known
            .newest
            .begins
            .saturating_add(DAY * SETTLED_DAYS)
            .unwrap_or(now);
    let is_trusted = wanted.trust == Trust::InPlace && is_settled;
    // Where the one that is shown has ended there is nothing to lose.
    let is_trusted = is_trusted || is_of_newest || now >= server.ends;
    if !(is_wanted && is_trusted) {
        return Ok(None);
    }
    let issuer = Issuer::new(authority_params(&known.newest.subject), known.key);
    let (certificate, key) = make_server(&issuer, wanted)?;
    Ok(Some(CertificateBundle {
        certificate,
        key,
        ..kept.clone()
    }))
}

/// Creates a new authority and certificate.
fn fresh(wanted: &Wanted<'_>) -> Result<CertificateBundle, rcgen::Error> {
    let (authorities, authority_key) = make_authority(wanted.now)?;
    let authority_pem = authority_key.serialize_pem();
    let name = authority_name(wanted.now);
    let issuer = Issuer::new(authority_params(&name), authority_key);
    let (certificate, key) = make_server(&issuer, wanted)?;
    Ok(CertificateBundle {
        authorities,
        authority_key: authority_pem,
        certificate,
        key,
    })
}

/// Two authorities differ in their names.
fn authority_name(now: Timestamp) -> String {
    format!("{NAME} {}", now.as_second())
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn make_authority(now: Timestamp) -> Result<(String, KeyPair), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = authority_params(&authority_name(now));
    set_validity(&mut params, now, AUTHORITY_DAYS);
    Ok((params.self_signed(&key)?.pem(), key))
}

fn make_server(
    issuer: &Issuer<'_, KeyPair>,
    wanted: &Wanted<'_>,
) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(wanted.hosts)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_validity(&mut params, wanted.now, SERVER_DAYS);
    let certificate = params.signed_by(&key, issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// From the day before, for clocks that are late.
fn set_validity(params: &mut CertificateParams, now: Timestamp, days: u32) {
    let day = |at: Timestamp| {
        let date = at.to_zoned(TimeZone::UTC).date();
        let part = |part: i8| u8::try_from(part).unwrap_or(1);
        rcgen::date_time_ymd(date.year().into(), part(date.month()), part(date.day()))
    };
    params.not_before = day(now.saturating_sub(DAY).unwrap_or(now));
    params.not_after = day(now.saturating_add(DAY * days).unwrap_or(now));
}

/// The parts of a certificate that matter here.
struct CertificateFields {
    subject: String,
    issuer: String,
    begins: Timestamp,
    ends: Timestamp,
}

impl CertificateFields {
    fn of(certificate: &X509Certificate<'_>) -> Option<Self> {
        let validity = certificate.validity();
        let name = |name: &x509_parser::x509::X509Name<'_>| {
            let common = name.iter_common_name().next()?;
            common.as_str().ok().map(str::to_owned)
        };
        Some(Self {
            subject: name(certificate.subject())?,
            issuer: name(certificate.issuer())?,
            begins: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
            ends: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
        })
    }

    /// Returns true if two thirds of its life are over.
    fn is_due(&self, now: Timestamp) -> bool {
        let life = self.ends.as_second() - self.begins.as_second();
        now.as_second() - self.begins.as_second() >= life / 3 * 2
    }
}

/// The stored bundle, parsed.
struct Known {
    newest: CertificateFields,
    key: KeyPair,
    authorities: Vec<(Timestamp, CertificateDer<'static>)>,
    server: CertificateFields,
    hosts: BTreeSet<String>,
}

impl Known {
    fn read(kept: &CertificateBundle) -> Option<Self> {
        let ders: Vec<_> = CertificateDer::pem_slice_iter(kept.authorities.as_bytes())
            .collect::<Result<_, _>>()
            .ok()?;
        let key = KeyPair::from_pem(&kept.authority_key).ok()?;
        let mut newest = None;
        let mut authorities = Vec::new();
        for der in ders {
            let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
            let fields = CertificateFields::of(&certificate)?;
            let is_its_key = certificate.public_key().raw == key.subject_public_key_info();
            let ends = fields.ends;
            if newest.is_none() {
                newest = is_its_key.then_some(fields);
                newest.as_ref()?;
            }
            authorities.push((ends, der.clone()));
        }
        let der = CertificateDer::from_pem_slice(kept.certificate.as_bytes()).ok()?;
        let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
        super::identity::Identity::from_pem(kept.certificate.as_bytes(), kept.key.as_bytes())
            .ok()?;
        Some(Self {
            newest: newest?,
            key,
            authorities,
            server: CertificateFields::of(&certificate)?,
            hosts: hosts(&certificate),
        })
    }

    /// The authorities that have not ended, as PEM.
    fn good_authorities(&self, now: Timestamp) -> String {
        let good = self.authorities.iter().filter(|(ends, _)| now < *ends);
        good.map(|(_, der)| pem(der)).collect()
    }
}

fn hosts(certificate: &X509Certificate<'_>) -> BTreeSet<String> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|names| &names.value.general_names);
    let host = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    };
    names.into_iter().flatten().filter_map(host).collect()
}

fn pem(der: &CertificateDer<'_>) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let text = STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in text.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

#[cfg(test)]
mod tests;
