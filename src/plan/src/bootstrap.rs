//! The bootstrap token of a machine deployment, and the kubeconfig that carries it to the kubelet.

use std::{borrow::Cow, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize as _, Zeroizing};

use super::machine_access::{self, AUTHORITY};
use osm_tenant::{certificates, cluster_info::ClusterInfo, secret_text::SecretText};

/// The characters of a token's ID and secret.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The length of a token's ID.
const ID_LENGTH: usize = 6;
/// The length of a token's secret.
const SECRET_LENGTH: usize = 16;

/// The groups of a token. machine-controller's approval of node certificates depends on them.
pub const AUTH_GROUPS: &str = "system:bootstrappers:machine-controller:default-node-token";

/// A bootstrap token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The public part, six characters.
    pub id: String,
    /// The secret part, sixteen characters.
    pub secret: SecretText,
    /// When the token expires.
    pub expires: Timestamp,
}

/// What to do about the token before anything is rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenPlan {
    /// Keep the token: it is valid for long enough.
    Keep(Token),
    /// Extend the token; this is the token with its new expiration time.
    Extend(Token),
    /// Create this token, because there is none.
    Create(Token),
}

impl TokenPlan {
    /// Returns the token that nodes get.
    pub fn token(&self) -> &Token {
        match self {
            Self::Keep(token) | Self::Extend(token) | Self::Create(token) => token,
        }
    }
}

/// The inputs for generating a token.
#[derive(Clone, Debug)]
pub struct Draw<'a> {
    /// The machine deployment's key. The same key gives the same ID, so that a repeated create is a
    /// conflict and not a second token.
    pub key: &'a str,
    /// How many generated IDs are taken by other tokens.
    pub attempt: u8,
    /// The random bytes that the secret part is generated from.
    pub random: &'a Randomness,
}

/// Random bytes from a cryptographic source.
#[derive(Clone)]
pub struct Randomness(pub [u8; 64]);

impl Drop for Randomness {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for Randomness {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("[redacted]")
    }
}

/// Decides whether to keep, extend or create the token. A token is extended after half of its
/// lifetime.
pub fn plan_token(
    existing: Option<&Token>,
    now: Timestamp,
    lifetime: Duration,
    draw: &Draw<'_>,
) -> TokenPlan {
    let expires = now.saturating_add(lifetime).unwrap_or(Timestamp::MAX);
    match existing {
        Some(token) if renewal(token, lifetime) > now => TokenPlan::Keep(token.clone()),
        Some(token) => TokenPlan::Extend(Token {
            expires,
            ..token.clone()
        }),
        None => TokenPlan::Create(Token {
            id: token_id(draw.key, draw.attempt),
            secret: SecretText::new(token_secret(&draw.random.0)),
            expires,
        }),
    }
}

/// Returns when a token must be extended.
pub fn renewal(token: &Token, lifetime: Duration) -> Timestamp {
    token
        .expires
        .saturating_sub(lifetime / 2)
        .unwrap_or(Timestamp::MIN)
}

fn token_id(key: &str, attempt: u8) -> String {
    let mut hash = Sha256::new();
    hash.update(key.as_bytes());
    hash.update([attempt]);
    hash.finalize()
        .iter()
        .take(ID_LENGTH)
        .filter_map(|byte| ALPHABET.get(usize::from(*byte) % ALPHABET.len()))
        .map(|byte| char::from(*byte))
        .collect()
}

/// Generates the secret part. Bytes that would favour some characters are skipped. The remaining
/// bytes suffice except once in 10^30 calls; the secret then ends in a constant.
fn token_secret(random: &[u8; 64]) -> String {
    let fair = 256 - 256 % ALPHABET.len();
    let mut characters = random
        .iter()
        .filter(|byte| usize::from(**byte) < fair)
        .filter_map(|byte| ALPHABET.get(usize::from(*byte) % ALPHABET.len()))
        .map(|byte| char::from(*byte));
    (0..SECRET_LENGTH)
        .map(|_| characters.next().unwrap_or('b'))
        .collect()
}

/// Returns the kubelet's bootstrap kubeconfig.
pub fn kubeconfig(cluster_info: &ClusterInfo, api_server: &str, token: &Token) -> SecretText {
    let token = SecretText::new(format!("{}.{}", token.id, token.secret.expose()));
    let authority = &cluster_info.certificate_authority_data;
    machine_access::kubeconfig(authority, api_server, token.expose())
}

/// Returns a kubeconfig with its certificate authority by its meaning, or `None` where it is that
/// already: machines cannot tell both from each other.
pub fn kubeconfig_meaning(kubeconfig: &str) -> Option<Zeroizing<String>> {
    let (before, rest) = kubeconfig.split_once(AUTHORITY)?;
    let data = rest.lines().next()?;
    let after = rest.strip_prefix(data)?;
    let pem = String::from_utf8(STANDARD.decode(data).ok()?).ok()?;
    match certificates::meaning(&pem) {
        Cow::Borrowed(_) => None,
        Cow::Owned(authority) => {
            let data = STANDARD.encode(authority);
            Some(Zeroizing::new([before, AUTHORITY, &data, after].concat()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_token(expires: Timestamp) -> Token {
        Token {
            id: "abc234".to_owned(),
            secret: SecretText::new("s"),
            expires,
        }
    }

    const HOUR: Duration = Duration::from_hours(1);
    const DRAW: Draw<'_> = Draw {
        key: "kube-system-workers",
        attempt: 0,
        random: &Randomness([7; 64]),
    };

    #[test]
    fn a_token_is_extended_after_half_of_its_lifetime() {
        let now = Timestamp::UNIX_EPOCH;
        let minutes = |count: i64| Timestamp::from_second(count * 60).unwrap();
        for (expires, extended) in [
            (61, false),
            (31, false),
            (30, true),
            (25, true),
            (-25, true),
        ] {
            let plan = plan_token(Some(&a_token(minutes(expires))), now, HOUR, &DRAW);
            assert_eq!(
                matches!(plan, TokenPlan::Extend(_)),
                extended,
                "{expires} minutes left"
            );
            if extended {
                assert_eq!(plan.token().expires, minutes(60));
                assert_eq!(plan.token().id, "abc234");
            }
        }
    }

    #[test]
    fn a_kubeconfig_means_what_its_certificates_mean() {
        let pem = |comment: &str| {
            let text =
                format!("{comment}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
            STANDARD.encode(text)
        };
        let with = |authority: &str| {
            let cluster_info = ClusterInfo {
                api_server: "https://api".to_owned(),
                certificate_authority_data: authority.to_owned(),
                fetch_token: SecretText::new("t"),
            };
            kubeconfig(
                &cluster_info,
                "https://api",
                &a_token(Timestamp::UNIX_EPOCH),
            )
        };
        let plain = with(&pem(""));
        assert_eq!(kubeconfig_meaning(plain.expose()), None);
        let commented = with(&pem("# berlin\n"));
        let meaning = kubeconfig_meaning(commented.expose()).unwrap();
        assert_eq!(meaning.as_str(), plain.expose());
        for other in ["", "no base64!", "b3RoZXI="] {
            assert_eq!(kubeconfig_meaning(with(other).expose()), None, "{other}");
        }
    }

    #[test]
    fn a_key_always_gives_the_same_token_id_and_another_attempt_gives_another() {
        let first = plan_token(None, Timestamp::UNIX_EPOCH, HOUR, &DRAW);
        let again = plan_token(None, Timestamp::UNIX_EPOCH, HOUR, &DRAW);
        let other = plan_token(
            None,
            Timestamp::UNIX_EPOCH,
            HOUR,
            &Draw { attempt: 1, ..DRAW },
        );
        assert_eq!(first, again);
        assert_ne!(first.token().id, other.token().id);
        assert_eq!(first.token().id.len(), 6);
        assert_eq!(first.token().secret.expose().len(), 16);
    }

    #[test]
    fn ids_use_the_whole_alphabet() {
        let ids: String = (0..=255).map(|attempt| token_id("key", attempt)).collect();
        let used: std::collections::BTreeSet<u8> = ids.bytes().collect();
        let alphabet: std::collections::BTreeSet<u8> = ALPHABET.iter().copied().collect();
        assert_eq!(used, alphabet);
    }

    #[test]
    fn token_secrets_skip_the_bytes_that_would_favour_some_characters() {
        // 9 × 27 = 243: bytes from 243 on would give the first 13 characters a tenth chance.
        let mut random = [0; 64];
        random[..7].copy_from_slice(&[255, 243, 242, 26, 27, 53, 244]);
        assert_eq!(token_secret(&random), "99b9bbbbbbbbbbbb");
        assert_eq!(token_secret(&[250; 64]), "b".repeat(SECRET_LENGTH));
    }

    #[test]
    fn the_debug_output_of_randomness_is_redacted() {
        assert_eq!(format!("{:?}", Randomness([7; 64])), "[redacted]");
    }

    #[test]
    fn the_kubeconfig_is_formatted_as_clientcmd_formats_it() {
        let cluster_info = ClusterInfo {
            api_server: "https://10.0.0.1:6443".to_owned(),
            certificate_authority_data: "Q0E=".to_owned(),
            fetch_token: SecretText::default(),
        };
        let token = a_token(Timestamp::UNIX_EPOCH);
        assert_eq!(
            kubeconfig(&cluster_info, "https://example.com", &token).expose(),
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: Q0E=\n    \
             server: https://example.com\n  name: c\ncontexts:\n- context:\n    cluster: c\n    \
             user: c\n  name: c\ncurrent-context: c\nkind: Config\nusers:\n- name: c\n  user:\n    \
             token: abc234.s\n"
        );
    }
}
