//! A folder that Ignition's files stage has written a document into, and what differs there from
//! what the document says.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    consumers::ignition_2::{contents, kernel_files, list},
    programs::{consumer, in_namespaces, run, text},
};

/// Where Ignition puts what the units' `enabled` says.
const PRESETS: &str = "etc/systemd/system-preset/20-ignition.preset";

/// Where Ignition puts the keys of Flatcar's user.
const KEYS: &str = "home/core/.ssh/authorized_keys.d/ignition";

pub struct IgnitionRoot {
    folder: TempDir,
}

impl IgnitionRoot {
    /// Has Ignition write a document of 3.x.
    pub fn provision(document: &Value) -> Self {
        assert_eq!(
            kernel_files(document),
            [""; 0],
            "this machine has one kernel"
        );
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        fs::write(folder.path().join("document.ign"), document.to_string())
            .expect("a document can be written");
        let root = Self { folder };
        // An image brings files of its own, which must give way.
        for file in list(document, "/storage/files") {
            let path = root.path(file["path"].as_str().unwrap_or_default());
            fs::create_dir_all(path.parent().expect("a file is in a folder"))
                .expect("a folder can be made");
            fs::write(path, "of the image").expect("a file can be written");
        }
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/consumers/ignition.sh");
        let ignition = consumer("ignition/usr/lib/dracut/modules.d/30ignition/ignition");
        let output = run(in_namespaces("bash")
            .arg(script)
            .arg(root.folder.path())
            .arg(ignition));
        assert!(output.status.success(), "{}", text(&output));
        root
    }

    /// A path below the folder.
    pub fn path(&self, path: &str) -> PathBuf {
        let root = self.folder.path().join("root");
        root.join(path.trim_start_matches('/'))
    }

    /// What differs from what a document says, of whichever version: what we use of both has the
    /// same names.
    pub fn differences(&self, document: &Value) -> Vec<String> {
        let mut differences = Vec::new();
        let listing = self.listing();
        for file in list(document, "/storage/files") {
            let path = file["path"].as_str().unwrap_or_default();
            if fs::read(self.path(path)).ok() != contents(file) {
                differences.push(format!("{path} has other bytes"));
            }
            let mode = file["mode"].as_u64().unwrap_or_default();
            let expected = format!("f {mode:o} root");
            let found = listing.get(path.trim_start_matches('/'));
            if found != Some(&expected) {
                differences.push(format!("{path} is {found:?} in place of {expected}"));
            }
        }
        let mut presets = BTreeSet::new();
        for unit in list(document, "/systemd/units") {
            differences.extend(self.unit_differences(unit));
            let name = unit["name"].as_str().unwrap_or_default();
            if let Some(is_enabled) = unit["enabled"].as_bool() {
                let action = if is_enabled { "enable" } else { "disable" };
                presets.insert(format!("{action} {name}"));
            }
        }
        let keys: BTreeSet<_> = list(document, "/passwd/users")
            .iter()
            .flat_map(|user| list(user, "/sshAuthorizedKeys"))
            .filter_map(|key| key.as_str().map(str::to_owned))
            .collect();
        for (path, expected) in [(PRESETS, presets), (KEYS, keys)] {
            let found = self.lines(path);
            if found != expected {
                differences.push(format!("{path} has {found:?} in place of {expected:?}"));
            }
        }
        differences
    }

    fn unit_differences(&self, unit: &Value) -> Vec<String> {
        let name = unit["name"].as_str().unwrap_or_default();
        let folder = "etc/systemd/system";
        let mut texts = vec![(format!("{folder}/{name}"), unit)];
        for drop_in in list(unit, "/dropins") {
            let drop_in_name = drop_in["name"].as_str().unwrap_or_default();
            texts.push((format!("{folder}/{name}.d/{drop_in_name}"), drop_in));
        }
        let mut differences: Vec<_> = texts
            .into_iter()
            .filter_map(|(path, text)| Some((path, text["contents"].as_str()?)))
            .filter(|(path, text)| {
                fs::read_to_string(self.path(path)).ok().as_deref() != Some(text)
            })
            .map(|(path, _)| format!("{path} has other bytes"))
            .collect();
        let link = fs::read_link(self.path(&format!("{folder}/{name}"))).ok();
        let is_masked = link.is_some_and(|link| link.ends_with("dev/null"));
        if is_masked != unit["mask"].as_bool().unwrap_or_default() {
            differences.push(format!("{name} is masked: {is_masked}"));
        }
        differences
    }

    /// Type, mode and owner by path.
    fn listing(&self) -> BTreeMap<String, String> {
        let listing = fs::read_to_string(self.folder.path().join("listing")).unwrap_or_default();
        let lines = listing.lines().filter_map(|line| {
            let words = line.splitn(4, ' ').collect::<Vec<_>>();
            let (path, facts) = words.split_last()?;
            Some(((*path).to_owned(), facts.join(" ")))
        });
        lines.collect()
    }

    fn lines(&self, path: &str) -> BTreeSet<String> {
        let text = fs::read_to_string(self.path(path)).unwrap_or_default();
        let lines = text.lines().filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    }
}
