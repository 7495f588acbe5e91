//! A cluster's data and keys, kept for one that goes on from there.

use std::fs;
use std::path::Path;

use super::components::{CA_CERTIFICATE, CA_KEY, ETCD_DATA, SIGNING_KEY, SIGNING_PUBLIC_KEY};
use super::credentials::{Authority, Identity};
use super::error::Error;

/// Without them, no token of a service account would be accepted.
const SIGNING: [&str; 2] = [SIGNING_KEY, SIGNING_PUBLIC_KEY];

/// Keeps what lies in a cluster's folder, and its authority.
pub(super) fn keep(cluster: &Path, authority: &Authority, kept: &Path) -> Result<(), Error> {
    copy(&cluster.join(ETCD_DATA), &kept.join(ETCD_DATA))?;
    for name in SIGNING {
        file(&cluster.join(name), |path| {
            fs::copy(path, kept.join(name)).map(drop)
        })?;
    }
    for (name, text) in [
        (CA_CERTIFICATE, authority.certificate()),
        (CA_KEY, &authority.key()),
    ] {
        file(&kept.join(name), |path| fs::write(path, text))?;
    }
    Ok(())
}

/// The authority that was kept.
pub(super) fn authority(kept: &Path, cluster: &str, server: String) -> Result<Authority, Error> {
    let read = |name: &str| file(&kept.join(name), |path| fs::read_to_string(path));
    let known = Identity {
        certificate: read(CA_CERTIFICATE)?,
        key: read(CA_KEY)?,
    };
    Authority::known(cluster, server, known).map_err(Error::Certificates)
}

/// Puts data and signing keys into the folder of a cluster.
pub(super) fn restore(kept: &Path, cluster: &Path) -> Result<(), Error> {
    copy(&kept.join(ETCD_DATA), &cluster.join(ETCD_DATA))?;
    for name in SIGNING {
        file(&kept.join(name), |path| {
            fs::copy(path, cluster.join(name)).map(drop)
        })?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    file(to, |path| fs::create_dir_all(path))?;
    for entry in file(from, |path| fs::read_dir(path))? {
        let entry = file(from, |_| entry)?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            file(&from, |path| fs::copy(path, &to).map(drop))?;
        }
    }
    Ok(())
}

fn file<T>(path: &Path, done: impl FnOnce(&Path) -> std::io::Result<T>) -> Result<T, Error> {
    done(path).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}
