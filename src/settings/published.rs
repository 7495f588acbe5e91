//! The settings with which a manager finds and judges registrations. Each of its replicas publishes
//! them in its Lease, so that commands see what the manager sees.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{InvalidSetting, RunFlags, yaml_file::YamlFile};

/// The flags that name files on which it depends what is served.
const FILES: [&str; 3] = ["inventory-rules", "tenant-defaults", "tenant-policies"];

/// The settings of a manager, as its replicas publish them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PublishedSettings {
    /// The namespaces that it watches; all, if empty.
    pub namespaces: Vec<String>,
    /// The namespaces that it does not watch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except_namespaces: Vec<String>,
    /// The values of its flags, by the name of the flag.
    flags: BTreeMap<String, Vec<String>>,
    /// The digests of the files that its flags name. Not everybody who may read a Lease may read
    /// what they contain.
    files: BTreeMap<String, String>,
}

/// Why a command cannot judge as the manager does.
#[derive(Debug, thiserror::Error)]
pub enum CannotFollow {
    /// The manager reads a file that the command was not given.
    #[error("the manager runs with --{0}, and publishes only a digest of that file: pass the file")]
    FileMissing(String),
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] InvalidSetting),
    /// A flag, or its value, is not one of this release.
    #[error("the manager runs with what this release of osm does not know: {0}")]
    Unknown(String),
}

/// What a command takes from the manager, and what not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed<F> {
    /// The flags, with the manager's values where none was typed.
    pub flags: F,
    /// The flags that were typed although the manager has another value, as `--name`.
    pub otherwise: Vec<String>,
}

/// The flags that were typed, by the name of their field. It must be the first field of the struct
/// that flattens it: fields take their values out of the matches in turn.
#[derive(Clone, Debug, Default)]
pub struct TypedFlags(BTreeMap<String, Vec<OsString>>);

impl TypedFlags {
    /// Returns the value of a field that was typed.
    pub fn value(&self, field: &str) -> Option<&str> {
        self.0.get(field)?.first()?.to_str()
    }
}

impl FromArgMatches for TypedFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let ids = matches.ids().map(clap::Id::as_str);
        let typed = ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
        let values = typed.filter_map(|id| {
            let raw = matches.try_get_raw(id).ok().flatten()?;
            Some((id.to_owned(), raw.map(OsString::from).collect()))
        });
        Ok(Self(values.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for TypedFlags {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl PublishedSettings {
    /// Returns the settings of these flags.
    ///
    /// # Errors
    ///
    /// A file cannot be read.
    pub(super) fn of(flags: &RunFlags) -> Result<Self, InvalidSetting> {
        let ranges = |ranges: &[_]| ranges.iter().map(ToString::to_string).collect();
        let is_set = |is_set: bool| is_set.then(|| "true".to_owned()).into_iter().collect();
        let number = |number: usize| vec![number.to_string()];
        let lifetime = humantime::format_duration(flags.token_lifetime);
        let values = [
            ("inventory", flags.inventories.clone()),
            (
                "registration-selector",
                vec![flags.registration_selector.clone()],
            ),
            ("profile-namespace", flags.profile_namespaces.clone()),
            (
                "allow-loopback-servers",
                is_set(flags.allow_loopback_servers),
            ),
            ("allowed-servers", ranges(&flags.allowed_servers)),
            ("denied-servers", ranges(&flags.denied_servers)),
            (
                "tenant-machine-deployments",
                number(flags.tenant_machine_deployments),
            ),
            ("tenant-profiles", number(flags.tenant_profiles)),
            ("tenant-profile-bytes", number(flags.tenant_profile_bytes)),
            ("token-lifetime", vec![lifetime.to_string()]),
        ];
        let paths = [
            &flags.inventory_rules,
            &flags.tenant_defaults,
            &flags.tenant_policies,
        ];
        let files = FILES.into_iter().zip(paths);
        let files = files.filter_map(|(flag, path)| Some((flag, path.as_deref()?)));
        Ok(Self {
            namespaces: flags.namespaces.clone(),
            except_namespaces: flags.except_namespaces.clone(),
            flags: values
                .map(|(flag, values)| (flag.to_owned(), values))
                .into(),
            files: files
                .map(|(flag, path)| Ok((flag.to_owned(), digest(flag, path)?)))
                .collect::<Result<_, InvalidSetting>>()?,
        })
    }

    /// Returns the settings as they are published.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns true if the manager watches this namespace.
    pub fn watches(&self, namespace: &str) -> bool {
        let has = |names: &[String]| names.iter().any(|it| it == namespace);
        (self.namespaces.is_empty() || has(&self.namespaces)) && !has(&self.except_namespaces)
    }

    /// Returns the flags of a command, with the manager's values where none was typed.
    ///
    /// # Errors
    ///
    /// The manager's settings are not known completely, or not to this release.
    pub fn complete<F: Args>(&self, typed: &TypedFlags) -> Result<Completed<F>, CannotFollow> {
        let of_run = RunFlags::augment_args(Command::default());
        let is_known =
            |flag: &&String| of_run.get_arguments().any(|it| it.get_long() == Some(flag));
        let mut published = self.flags.keys().chain(self.files.keys());
        if let Some(flag) = published.find(|flag| !is_known(flag)) {
            return Err(CannotFollow::Unknown(flag.clone()));
        }
        let command = F::augment_args(Command::new("osm"));
        let (mut line, mut otherwise) = (vec![OsString::from("osm")], Vec::new());
        for argument in command.get_arguments() {
            let Some(flag) = argument.get_long() else {
                continue;
            };
            let typed = typed.0.get(argument.get_id().as_str());
            let values = match typed {
                Some(values) => values.clone(),
                None if self.files.contains_key(flag) => {
                    return Err(CannotFollow::FileMissing(flag.to_owned()));
                }
                None => {
                    let values = self.flags.get(flag).into_iter().flatten();
                    values.map(OsString::from).collect()
                }
            };
            if typed.is_some() && self.is_another(flag, &values)? {
                otherwise.push(format!("--{flag}"));
            }
            line.extend(words(argument, flag, values));
        }
        let matches = command.try_get_matches_from(line);
        let flags = matches.and_then(|matches| F::from_arg_matches(&matches));
        Ok(Completed {
            flags: flags.map_err(|error| CannotFollow::Unknown(error.to_string()))?,
            otherwise,
        })
    }

    /// Returns true if what was typed is not the manager's value of a flag.
    fn is_another(&self, flag: &str, typed: &[OsString]) -> Result<bool, InvalidSetting> {
        if let Some(values) = self.flags.get(flag) {
            return Ok(values.iter().map(OsString::from).ne(typed.iter().cloned()));
        }
        let (Some(flag), Some(path)) = (FILES.into_iter().find(|it| it == &flag), typed.first())
        else {
            return Ok(false);
        };
        let path = Path::new(path);
        Ok(self.files.get(flag) != Some(&digest(flag, path)?))
    }
}

/// Returns the digest of a file.
fn digest(flag: &'static str, path: &Path) -> Result<String, InvalidSetting> {
    let content = YamlFile { flag, path }.bytes()?;
    Ok(hex::encode(Sha256::digest(content)))
}

/// Returns the words of a flag as they are typed.
fn words(argument: &Arg, flag: &str, values: Vec<OsString>) -> impl Iterator<Item = OsString> {
    let has_value = !matches!(argument.get_action(), ArgAction::SetTrue);
    values.into_iter().map(move |value| {
        let mut word = OsString::from(format!("--{flag}"));
        if has_value {
            word.push("=");
            word.push(value);
        }
        word
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::settings::EgressFlags;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        typed: TypedFlags,
        #[command(flatten)]
        run: RunFlags,
    }

    fn line(words: &[&str]) -> Line {
        Line::try_parse_from([&["osm"], words].concat()).unwrap()
    }

    fn published(words: &[&str]) -> PublishedSettings {
        let settings = PublishedSettings::of(&line(words).run).unwrap();
        serde_json::from_str(&settings.text()).unwrap()
    }

    fn completed(
        manager: &PublishedSettings,
        words: &[&str],
    ) -> Result<Completed<RunFlags>, CannotFollow> {
        manager.complete(&line(words).typed)
    }

    #[test]
    fn a_command_takes_what_was_not_typed_from_the_manager() {
        let manager = published(&[
            "--inventory=kkp,cluster-api",
            "--allow-loopback-servers",
            "--denied-servers=10.0.0.0/8",
            "--denied-servers=fd00::/8",
            "--token-lifetime=90m",
            "--namespace=a",
        ]);
        assert!(manager.watches("a") && !manager.watches("b"));
        let Completed { flags, otherwise } =
            completed(&manager, &["--inventory=label", "--tenant-profiles=200"]).unwrap();
        assert_eq!(flags.inventories, ["label"]);
        assert!(flags.allow_loopback_servers);
        assert_eq!(flags.denied_servers.len(), 2);
        assert_eq!(flags.token_lifetime.as_secs(), 90 * 60);
        assert!(flags.namespaces.is_empty(), "that selects tenants");
        assert_eq!(otherwise, ["--inventory"], "the other has the same value");
        let elsewhere = published(&["--except-namespace=a"]);
        assert!(!elsewhere.watches("a") && elsewhere.watches("b"));
        let without = completed(&published(&[]), &[]).unwrap().flags;
        assert!(!without.allow_loopback_servers);
    }

    #[test]
    fn a_file_of_the_managers_must_be_passed_and_another_one_is_named() {
        let (here, other) = (a_file("pauseImage: a"), a_file("pauseImage: b"));
        let typed =
            |file: &tempfile::NamedTempFile| format!("--tenant-defaults={}", file.path().display());
        let manager = published(&[&typed(&here)]);
        let missing = completed(&manager, &[]).unwrap_err().to_string();
        assert!(missing.contains("--tenant-defaults"), "{missing}");
        let same = completed(&manager, &[&typed(&here)]).unwrap();
        assert!(same.otherwise.is_empty());
        for (manager, file) in [(&manager, &other), (&published(&[]), &here)] {
            let found = completed(manager, &[&typed(file)]).unwrap();
            assert_eq!(found.otherwise, ["--tenant-defaults"]);
        }
        let of_another_command: Completed<EgressFlags> =
            manager.complete(&TypedFlags::default()).unwrap();
        assert!(of_another_command.otherwise.is_empty());
    }

    #[test]
    fn settings_of_a_later_release_are_not_followed() {
        let mut manager = published(&[]);
        let flag = "served-from-2030".to_owned();
        manager.flags.insert(flag.clone(), vec!["true".to_owned()]);
        let unknown = completed(&manager, &[]).unwrap_err().to_string();
        assert!(unknown.contains(&flag), "{unknown}");
        let later = r#"{"namespaces": [], "flags": {}, "files": {}, "namespaceLabels": []}"#;
        assert!(serde_json::from_str::<PublishedSettings>(later).is_err());
    }

    fn a_file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }
}
