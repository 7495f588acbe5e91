//! How large documents may be: what each cloud provider takes as user data, and what Kubernetes
//! takes of a Secret and of a config. The sources are in `docs/user-data-sizes.md`.
//!
//! Sizes are checked before anything is written: a document that the provider refuses would leave
//! machines that never come up, while the previous document still works.

use std::{borrow::Cow, fmt};

use base64::encoded_len;
use serde::{Deserialize, Serialize};

use osm_api::profile::{CloudProvider, File, OperatingSystem};
use osm_render::{
    Half, Limits, RenderError, RenderInput, Rendered,
    encode::{carried_bytes, gzip::gzip},
    render,
};

const KIB: usize = 1_024;
/// Kubernetes takes this many bytes of data in a Secret.
pub(crate) const SECRET_BYTES_MAX: usize = 1_024 * KIB;
/// etcd takes 1.5 MiB of a request; the difference is left to metadata.
const CONFIG_BYTES_MAX: usize = 1_500_000;
/// From this share of a limit on there is a warning.
const WARNING_PERCENT: usize = 80;
/// The level at which machine-controller compresses for AWS.
const GZIP_LEVEL_DEFAULT: u32 = 6;
/// A machine's name of the greatest length, which takes the place of the placeholders.
const MACHINE_NAME_LONGEST: &str =
    "machine-deployment-of-a-very-long-name-in-prod-5d8f7c9b64-x2vqz";

/// The measure of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counted {
    /// The bytes of the document.
    Plain,
    /// The bytes as machine-controller compresses them.
    Gzipped,
    /// The characters of the document in base64.
    Base64,
}

/// A provider's limit on user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The most that it takes.
    pub bytes_max: usize,
    /// Of what.
    pub counted: Counted,
}

/// Returns a provider's limit on user data; `None` if its vendor documents none.
pub fn limit(provider: &CloudProvider, system: &OperatingSystem) -> Option<Limit> {
    let (bytes_max, counted) = match (provider, system) {
        (CloudProvider::Aws, OperatingSystem::Flatcar) => (16 * KIB, Counted::Plain),
        (CloudProvider::Aws, _) => (16 * KIB, Counted::Gzipped),
        (CloudProvider::Alibaba | CloudProvider::Hetzner | CloudProvider::Nutanix, _) => {
            (32 * KIB, Counted::Plain)
        }
        (CloudProvider::Azure, _) => (65_535, Counted::Plain),
        (CloudProvider::DigitalOcean, _) => (64 * KIB, Counted::Plain),
        (CloudProvider::Linode | CloudProvider::OpenStack, _) => (65_535, Counted::Base64),
        (CloudProvider::Gce, _) => (256 * KIB, Counted::Plain),
        _ => return None,
    };
    Some(Limit { bytes_max, counted })
}

/// A render that is small enough to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeChecked {
    /// The config and the documents.
    pub rendered: Rendered,
    /// A sentence about what is close to its limit.
    pub near_limit: Option<String>,
}

/// A document, or the config, is too large.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error(
    "{what} has {size} bytes{counted}, {excess} more than the {bytes_max} that {taker} \
     takes{largest}; {}",
    .what.remedy()
)]
pub struct TooLarge {
    what: Subject,
    size: usize,
    counted: Counted,
    excess: usize,
    bytes_max: usize,
    taker: Cow<'static, str>,
    largest: Largest,
}

/// A thing that has a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Subject {
    Bootstrap,
    Provisioning,
    Config,
}

impl Subject {
    /// Returns how to make it smaller.
    const fn remedy(self) -> &'static str {
        match self {
            Self::Bootstrap => {
                "make it smaller, set `encoding: gzip` for its large files, or move them to \
                 provisioningConfig"
            }
            Self::Provisioning => {
                "make it smaller, set `encoding: gzip` for its large files, or let machines \
                 download them"
            }
            // It has the text of every file, whether a document compresses it or not.
            Self::Config => "make its large files smaller, or let machines download them",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Bootstrap => Half::Bootstrap.document(),
            Self::Provisioning => Half::Provisioning.document(),
            Self::Config => "the OperatingSystemConfig",
        })
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Plain => "",
            Self::Gzipped => " after gzip",
            Self::Base64 => " in base64",
        })
    }
}

/// The largest file of a document, with the bytes that it takes there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Largest(Option<(String, usize)>);

impl Largest {
    fn of<'a>(files: impl IntoIterator<Item = &'a File>) -> Self {
        let sizes = files.into_iter().map(|file| (carried_bytes(file), file));
        let largest = sizes.max_by_key(|(size, _)| *size);
        Self(largest.map(|(size, file)| (file.path.clone(), size)))
    }
}

impl fmt::Display for Largest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some((path, size)) => write!(
                formatter,
                "; its largest file is {} with {size}",
                path.escape_debug()
            ),
            None => Ok(()),
        }
    }
}

/// Something that has a limit.
struct Measured<'a> {
    what: Subject,
    size: usize,
    limit: Limit,
    taker: &'a str,
    files: Vec<&'a File>,
}

impl Measured<'_> {
    fn check(&self) -> Result<Option<String>, TooLarge> {
        let Limit { bytes_max, counted } = self.limit;
        let Self {
            what, size, taker, ..
        } = *self;
        let largest = || Largest::of(self.files.iter().copied());
        if let Some(excess) = size.checked_sub(bytes_max).filter(|excess| *excess > 0) {
            return Err(TooLarge {
                what,
                size,
                counted,
                excess,
                bytes_max,
                taker: taker.to_owned().into(),
                largest: largest(),
            });
        }
        let percent = size * 100 / bytes_max;
        Ok((percent >= WARNING_PERCENT).then(|| {
            format!(
                "{what} has {size} bytes{counted}, {percent} % of the {bytes_max} that {taker} \
                 takes{}",
                largest()
            )
        }))
    }
}

/// Rendered documents with their sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighed {
    /// The sizes of both documents in bytes, provisioning first.
    pub sizes: [usize; 2],
    /// The documents, or the one that is too large.
    pub documents: Result<SizeChecked, TooLarge>,
}

/// Renders a profile for a machine deployment, and checks the sizes.
///
/// # Errors
///
/// The profile cannot be rendered.
pub fn weigh(input: &RenderInput<'_>, limits: &Limits) -> Result<Weighed, RenderError> {
    let rendered = render(input, limits)?;
    Ok(Weighed {
        sizes: [rendered.provisioning.len(), rendered.bootstrap.len()],
        documents: fit(rendered),
    })
}

/// Checks the sizes of the rendered documents.
///
/// # Errors
///
/// A document or the config is too large.
pub fn fit(rendered: Rendered) -> Result<SizeChecked, TooLarge> {
    let mut warnings = Vec::new();
    for measured in measure(&rendered) {
        warnings.extend(measured.check()?);
    }
    Ok(SizeChecked {
        rendered,
        near_limit: (!warnings.is_empty()).then(|| warnings.join("; ")),
    })
}

fn measure(rendered: &Rendered) -> Vec<Measured<'_>> {
    const SECRET: Limit = Limit {
        bytes_max: SECRET_BYTES_MAX,
        counted: Counted::Plain,
    };
    let config = &rendered.config;
    let bootstrap_files = &config.bootstrap_config.files;
    let provisioning_files = &config.provisioning_config.files;
    let provider = &config.cloud_provider.name;
    let bootstrap = match limit(provider, &config.os_name) {
        Some(limit) => (limit, provider.as_str()),
        None => (SECRET, "a Secret"),
    };
    let stored = serde_json::to_vec(&rendered.stored_config).expect("a config is plain values");
    vec![
        Measured {
            what: Subject::Bootstrap,
            size: counted_size(rendered.bootstrap.as_bytes(), bootstrap.0.counted),
            limit: bootstrap.0,
            taker: bootstrap.1,
            files: bootstrap_files.iter().collect(),
        },
        Measured {
            what: Subject::Provisioning,
            size: rendered.provisioning.len(),
            limit: SECRET,
            taker: "a Secret",
            files: provisioning_files.iter().collect(),
        },
        Measured {
            what: Subject::Config,
            size: stored.len(),
            limit: Limit {
                bytes_max: CONFIG_BYTES_MAX,
                counted: Counted::Plain,
            },
            taker: "etcd",
            files: bootstrap_files.iter().chain(provisioning_files).collect(),
        },
    ]
}

/// The size that a provider counts, once machine-controller has put the machine's name in.
fn counted_size(document: &[u8], counted: Counted) -> usize {
    let named = String::from_utf8_lossy(document)
        .replace("<MACHINE_NAME>", MACHINE_NAME_LONGEST)
        .replace("%3CMACHINE_NAME%3E", MACHINE_NAME_LONGEST);
    match counted {
        Counted::Plain => named.len(),
        Counted::Gzipped => gzip(named.as_bytes(), GZIP_LEVEL_DEFAULT).len(),
        Counted::Base64 => encoded_len(named.len(), true).unwrap_or(usize::MAX),
    }
}

#[cfg(test)]
mod tests;
