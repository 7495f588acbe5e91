//! The reference of the variables that templates can read: for each its type, its type in Go
//! templates, its meaning, and whether it contains a secret. `docs/template-data.md` is generated
//! from it. Tests compare it with the data of `data`.

mod variables;

pub use variables::{ONLY_IN_JINJA, VARIABLES};

/// A variable that templates can read, or a field of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name, with a dot before a field of a structure.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// The type in Go templates, where `none` is a nil pointer.
    pub go_type: &'static str,
    /// The meaning.
    pub meaning: &'static str,
    /// True if the stored config has a marker in its place.
    pub is_secret: bool,
}

/// The type of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "`as_str` says what each is")]
pub enum Kind {
    Text,
    OptionalText,
    Truth,
    OptionalNumber,
    List,
    ListOfMaps,
    Map,
    OptionalMap,
    Structure,
    OptionalStructure,
}

impl Kind {
    /// Returns the type in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::OptionalText => "text or `none`",
            Self::Truth => "true or false",
            Self::OptionalNumber => "number or `none`",
            Self::List => "list of text",
            Self::ListOfMaps => "list of maps",
            Self::Map => "map",
            Self::OptionalMap => "map of text or `none`",
            Self::Structure => "structure",
            Self::OptionalStructure => "structure or `none`",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use minijinja::{Value, value::ValueKind};
    use serde_json::json;

    use super::*;
    use crate::{
        data::ValidInput,
        fixtures::{World, a_world},
        input::{ProviderConfig, RegistryCredential},
        template::CompiledProfile,
    };
    use osm_tenant::secret_text::SecretText;

    /// Creates a machine deployment with every possible setting.
    fn full() -> World {
        let mut world = a_world();
        world.provider_spec = json!({
            "operatingSystem": "rhel",
            "cloudProvider": "aws",
            "overwriteCloudConfig": "s",
            "network": {"ipFamily": "IPv4"},
            "operatingSystemSpec": {
                "rhelSubscriptionManagerUser": "s",
                "rhelSubscriptionManagerPassword": "s",
                "rhsmOfflineToken": "s",
                "rhelOrganizationName": "s",
                "rhelActivationKey": "s",
            },
        });
        let credential = RegistryCredential {
            password: SecretText::new("s"),
            ..RegistryCredential::default()
        };
        world
            .registry_credentials
            .insert("r.example".to_owned(), credential);
        let prefix = "v1.kubelet-config.machine-controller.kubermatic.io";
        for (name, value) in [
            ("KubeReserved", "cpu=1"),
            ("SystemReserved", "cpu=1"),
            ("EvictionHard", "memory.available<1Gi"),
            ("MaxPods", "5"),
            ("ImageGCHighThresholdPercent", "5"),
            ("ImageGCLowThresholdPercent", "4"),
            ("ImageMinimumGCAge", "1h"),
            ("ImageMaximumGCAge", "2h"),
            ("ContainerLogMaxSize", "1"),
            ("ContainerLogMaxFiles", "2"),
        ] {
            world
                .annotations
                .insert(format!("{prefix}/{name}"), value.to_owned());
        }
        world.settings.http_proxy = Some("p".to_owned());
        world
    }

    /// Returns the variables and the fields of structures in the data, inline and with markers.
    fn data(world: &World) -> BTreeMap<String, (Value, Value)> {
        let profile = CompiledProfile::compile(&world.profile).unwrap();
        let provider = ProviderConfig::decode(&world.provider_spec).unwrap();
        let data = ValidInput::new(world.input(&profile, &provider))
            .unwrap()
            .template_data();
        let mut found = BTreeMap::new();
        for (name, value) in &data.inline {
            let marked = data.marked.get(name).unwrap_or(value);
            add(
                &mut found,
                (*name).to_owned(),
                (value.clone(), marked.clone()),
            );
        }
        found
    }

    fn add(found: &mut BTreeMap<String, (Value, Value)>, name: String, pair: (Value, Value)) {
        // Maps have arbitrary keys; structures have fields.
        let is_map = ["variables", "RHSubscription", "KubeletFeatureGates"]
            .contains(&name.as_str())
            || ["Reserved", "EvictionHard"]
                .iter()
                .any(|end| name.ends_with(end));
        if pair.0.kind() == ValueKind::Map && !is_map {
            for key in pair.0.try_iter().unwrap() {
                let field = |value: &Value| value.get_item(&key).unwrap();
                let fields = (field(&pair.0), field(&pair.1));
                add(found, format!("{name}.{key}"), fields);
            }
        }
        found.insert(name, pair);
    }

    #[test]
    fn the_reference_names_what_the_data_has_and_nothing_else() {
        let data: BTreeSet<String> = data(&full()).into_keys().collect();
        let named: Vec<String> = VARIABLES.iter().map(|row| row.name.to_owned()).collect();
        assert_eq!(named.iter().cloned().collect::<BTreeSet<_>>(), data);
        assert!(
            named.is_sorted(),
            "the rows stand in the order of their names"
        );
    }

    #[test]
    fn the_reference_says_the_type_of_each_variable() {
        let (full, plain) = (data(&full()), data(&a_world()));
        for row in VARIABLES {
            let kind = match row.kind {
                Kind::Text | Kind::OptionalText => ValueKind::String,
                Kind::Truth => ValueKind::Bool,
                Kind::OptionalNumber => ValueKind::Number,
                Kind::List | Kind::ListOfMaps => ValueKind::Seq,
                Kind::Map | Kind::OptionalMap | Kind::Structure | Kind::OptionalStructure => {
                    ValueKind::Map
                }
            };
            assert_eq!(full[row.name].0.kind(), kind, "{}", row.name);
            let is_optional = row.kind.as_str().ends_with("`none`");
            assert_eq!(row.go_type.starts_with('*'), is_optional, "{}", row.name);
            if is_optional && row.name != "NoProxy" {
                assert!(plain[row.name].0.is_none(), "{}", row.name);
            }
        }
    }

    #[test]
    fn the_reference_says_which_variables_are_secret() {
        let rows = VARIABLES.iter();
        let reported: Vec<&str> = rows
            .filter(|row| row.is_secret)
            .map(|row| row.name)
            .collect();
        let data = data(&full());
        let is_structure = |pair: &(Value, Value)| pair.0.kind() == ValueKind::Map;
        let secret = data
            .iter()
            .filter(|(_, pair)| pair.0 != pair.1 && !is_structure(pair));
        assert_eq!(
            reported,
            secret.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        );
    }
}
