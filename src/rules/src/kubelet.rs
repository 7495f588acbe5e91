//! The versions of kubelets that are supported.

use std::ops::RangeInclusive;

/// The supported minors of Kubernetes 1. The real readers of documents are tested with each.
pub const MINORS: RangeInclusive<u64> = 33..=36;

/// Returns a sentence if a version is outside of the supported range, or is none that Kubernetes
/// has released. What is no version has an error of its own.
pub fn unsupported(version: &str) -> Option<String> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut number = || numbers.next()?.parse::<u64>().ok();
    let (major, minor) = (number()?, number()?);
    if major != 1 || !MINORS.contains(&minor) {
        return Some(format!(
            "kubelet {version} is not supported: documents are tested with 1.{} to 1.{}",
            MINORS.start(),
            MINORS.end()
        ));
    }
    let (_, suffix) = version.split_once(['-', '+'])?;
    let mut names = ["alpha.", "beta.", "rc."].iter();
    (!names.any(|name| suffix.starts_with(name))).then(|| {
        format!(
            "kubelet {version} is no release of Kubernetes: machines find it only at a site of \
             their own, which the variable kubernetesDownloadURL names"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_supported_by_its_minor() {
        for version in ["1.33.0", "v1.36.9", "1.35", "1.36.0-rc.1", "latest", ""] {
            assert_eq!(unsupported(version), None, "{version}");
        }
        for version in ["1.36.0-eks-1234", "v1.35.1+k3s1"] {
            let found = unsupported(version).expect(version);
            assert!(found.contains("no release"), "{found}");
        }
        for version in ["1.12.0", "1.12.0+x", "v1.32.11", "1.99.0", "2.34.0"] {
            let found = unsupported(version).expect(version);
            assert!(found.contains("1.33 to 1.36"), "{found}");
        }
    }
}
