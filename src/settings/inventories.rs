//! The inventories by their names: the built-in ones, and those of the operator's rules, which are
//! in a file.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use super::{InvalidSetting, yaml_file::YamlFile};
use crate::tenant::inventory::{BUILT_IN, Inventory, SecretRule};

/// Returns the inventories with these names.
///
/// # Errors
///
/// The file cannot be read, one of its rules is invalid, or a name is unknown.
pub fn inventories(
    names: &[String],
    rules: Option<&Path>,
) -> Result<BTreeSet<Inventory>, InvalidSetting> {
    let rules = rules.map(read).transpose()?.unwrap_or_default();
    let find = |name: &String| {
        let by_rule = || rules.iter().find(|rule| rule.name == *name);
        let found = Inventory::built_in(name);
        let found = found.or_else(|| by_rule().cloned().map(Arc::new).map(Inventory::Rule));
        found.ok_or_else(|| {
            let known = BUILT_IN.into_iter().chain(rules.iter().map(|it| &*it.name));
            InvalidSetting::Inventory {
                name: name.clone(),
                known: known.collect::<Vec<_>>().join(", "),
            }
        })
    };
    names.iter().map(find).collect()
}

/// Returns the keys under which Secrets have their kubeconfigs, in all built-in inventories and in
/// those of the rules.
///
/// # Errors
///
/// The file cannot be read, or one of its rules is invalid.
pub fn kubeconfig_keys(rules: Option<&Path>) -> Result<Vec<String>, InvalidSetting> {
    let rules = rules.map(read).transpose()?.unwrap_or_default();
    let rules = rules.into_iter().map(Arc::new).map(Inventory::Rule);
    let all = BUILT_IN.into_iter().filter_map(Inventory::built_in);
    let mut keys: Vec<String> = Vec::new();
    for inventory in all.chain(rules) {
        for key in inventory.keys() {
            if !keys.iter().any(|known| known == key) {
                keys.push(key.to_owned());
            }
        }
    }
    Ok(keys)
}

fn read(path: &Path) -> Result<Vec<SecretRule>, InvalidSetting> {
    let file = YamlFile {
        flag: "inventory-rules",
        path,
    };
    let rules: Vec<SecretRule> = file.read()?;
    let mut names = BTreeSet::new();
    for rule in &rules {
        let in_rule = |why: String| file.refused(format!("rule {}: {why}", rule.name));
        rule.check().map_err(in_rule)?;
        if !names.insert(&rule.name) {
            return Err(in_rule("name: another rule has it".to_owned()));
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn refusal(names: &[&str], rules: &str) -> String {
        let names: Vec<String> = names.iter().map(|&it| it.to_owned()).collect();
        let file = a_file(rules);
        let refused = inventories(&names, Some(file.path()));
        refused.unwrap_err().to_string()
    }

    #[test]
    fn an_inventory_is_built_in_or_has_a_rule() {
        let file = a_file("- {name: ours, labelSelector: a=b, key: config, home: Worker}\n");
        let names = ["kkp", "ours"].map(str::to_owned);
        let found = inventories(&names, Some(file.path())).unwrap();
        let found: Vec<_> = found.into_iter().collect();
        let [Inventory::Kkp, Inventory::Rule(rule)] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(rule.cluster("prod"), Some("prod"));
        let keys = kubeconfig_keys(Some(file.path())).unwrap();
        assert_eq!(keys, ["kubeconfig", "value", "admin.conf", "config"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let ours = "- {name: ours, type: Opaque, key: a}\n";
        let why = refusal(&["theirs"], ours);
        assert!(
            why.contains("label, kkp, cluster-api, kamaji, ours"),
            "{why}"
        );
        let why = refusal(&["ours"], &ours.repeat(2));
        assert!(why.contains("rule ours: name: another"), "{why}");
        let why = refusal(&["ours"], "- {name: ours, key: a, nameSuffix: -a}\n");
        assert!(why.contains("rule ours: type, labelSelector"), "{why}");
        let why = refusal(
            &["ours"],
            "- {name: ours, key: a, tenantNamespace: other}\n",
        );
        assert!(why.contains("tenantNamespace"), "{why}");
    }
}
