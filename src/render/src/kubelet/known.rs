//! What the kubelets of the supported minors know: feature gates, flags, and the fields of their
//! configuration. `.ci/kubelet-facts` writes the files from Kubernetes' own modules.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::LazyLock,
};

use super::super::version::Version;

/// Each supported minor of Kubernetes 1, with what its kubelet knows.
const FACTS: [(u64, &str); 4] = [
    (34, include_str!("known/1.34.txt")),
    (35, include_str!("known/1.35.txt")),
    (36, include_str!("known/1.36.txt")),
    (37, include_str!("known/1.37.txt")),
];

/// The supported minors of Kubernetes 1. The real readers of documents are tested with each.
pub const MINORS: RangeInclusive<u64> = {
    let [(oldest, _), .., (newest, _)] = FACTS;
    oldest..=newest
};

/// The gates that turn many others on or off.
const OF_MANY: [&str; 2] = ["AllAlpha", "AllBeta"];

static KNOWN: LazyLock<[Known; FACTS.len()]> = LazyLock::new(|| FACTS.map(Known::read));

/// What the kubelet of one minor knows.
#[derive(Debug)]
pub struct Known {
    minor: u64,
    gates: BTreeMap<&'static str, Gate>,
    flags: BTreeSet<&'static str>,
    fields: BTreeMap<&'static str, &'static str>,
}

#[derive(Debug)]
struct Gate {
    is_on: bool,
    is_locked: bool,
    needs: Vec<&'static str>,
}

/// A feature gate with which a kubelet does not start.
#[derive(Debug, PartialEq, Eq)]
pub struct GateFault {
    /// The gate that somebody set.
    pub gate: String,
    /// The end of a sentence that begins with the kubelet.
    pub problem: String,
}

impl Known {
    /// Returns what a kubelet of a version knows, if its minor is supported.
    pub fn of(version: &str) -> Option<&'static Self> {
        let version = Version::parse(version).filter(|it| it.major == 1)?;
        KNOWN.iter().find(|it| it.minor == version.minor)
    }

    fn read((minor, facts): (u64, &'static str)) -> Self {
        let mut known = Self {
            minor,
            gates: BTreeMap::new(),
            flags: BTreeSet::new(),
            fields: BTreeMap::new(),
        };
        for line in facts.lines() {
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("gate"), Some(name), Some(default)) => {
                    let mut needs: Vec<_> = words.collect();
                    let is_locked = needs.first() == Some(&"locked");
                    needs.retain(|it| *it != "locked");
                    let gate = Gate {
                        is_on: default == "on",
                        is_locked,
                        needs,
                    };
                    known.gates.insert(name, gate);
                }
                (Some("flag"), Some(name), None) => drop(known.flags.insert(name)),
                (Some("field"), Some(path), Some(kind)) => drop(known.fields.insert(path, kind)),
                _ => {}
            }
        }
        known
    }

    /// Returns true if the kubelet takes a flag, named without dashes.
    pub fn has_flag(&self, name: &str) -> bool {
        self.flags.contains(name)
    }

    /// Returns the type of a field of the configuration, such as `authentication.webhook.enabled`.
    /// The elements of a list are at `name[]`, the values of a map at `name{}`.
    pub fn field(&self, path: &str) -> Option<&'static str> {
        self.fields.get(path).copied()
    }

    /// Returns the minor version.
    pub const fn minor(&self) -> u64 {
        self.minor
    }

    /// Returns the first feature gate with which the kubelet does not start.
    pub fn refuses(&self, gates: &BTreeMap<String, bool>) -> Option<GateFault> {
        let fault = |gate: &str, with: String| GateFault {
            gate: gate.to_owned(),
            problem: format!("does not start with the feature gate {with}"),
        };
        for (name, is_on) in gates {
            let Some(gate) = self.gates.get(name.as_str()) else {
                return Some(fault(name, format!("`{name}`, which it does not have")));
            };
            if gate.is_locked && gate.is_on != *is_on {
                let locked = gate.is_on;
                return Some(fault(
                    name,
                    format!("`{name}`, which is locked to {locked}"),
                ));
            }
        }
        if gates.keys().any(|it| OF_MANY.contains(&it.as_str())) {
            return None;
        }
        let is_on = |name: &str| {
            let default = self.gates.get(name).is_some_and(|it| it.is_on);
            gates.get(name).copied().unwrap_or(default)
        };
        for (name, gate) in self.gates.iter().filter(|(name, _)| is_on(name)) {
            if let Some(need) = gate.needs.iter().find(|it| !is_on(it)) {
                let set = if gates.contains_key(*name) {
                    name
                } else {
                    need
                };
                return Some(fault(set, format!("`{name}` on and `{need}` off")));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(version: &str, gates: &[(&str, bool)]) -> Option<(String, String)> {
        let gates = gates
            .iter()
            .map(|(name, is_on)| ((*name).to_owned(), *is_on));
        let known = Known::of(version).expect(version);
        let fault = known.refuses(&gates.collect());
        fault.map(|it| (it.gate, it.problem))
    }

    #[test]
    fn the_facts_of_each_minor_are_whole() {
        for (minor, facts) in FACTS {
            let first = facts.lines().next().unwrap_or_default();
            assert!(
                first.starts_with(&format!("# Kubernetes v1.{minor}.")),
                "{first}"
            );
            let known = Known::of(&format!("v1.{minor}.0")).expect("it is supported");
            let lines = known.gates.len() + known.flags.len() + known.fields.len();
            assert_eq!(lines + 1, facts.lines().count(), "each line is understood");
            for gate in known.gates.values() {
                for need in &gate.needs {
                    assert!(known.gates.contains_key(need), "{need}");
                }
            }
            assert!(known.has_flag("bootstrap-kubeconfig"));
            assert_eq!(known.field("maxPods"), Some("int32"));
        }
        for version in ["1.33.9", "1.38.0", "2.35.0", "latest"] {
            assert!(Known::of(version).is_none(), "{version}");
        }
        assert!(refused("1.36.1", &[]).is_none() && refused("1.37.1", &[]).is_none());
    }

    #[test]
    fn every_gate_that_1_37_dropped_is_refused_there_and_taken_before() {
        let [.., before, now] = &*KNOWN;
        let dropped: Vec<_> = before
            .gates
            .keys()
            .filter(|it| !now.gates.contains_key(*it))
            .collect();
        assert_eq!(dropped.len(), 25);
        for name in dropped {
            let default = before.gates[name].is_on;
            assert_eq!(refused("1.36.0", &[(name, default)]), None, "{name}");
            let (gate, problem) = refused("1.37.0", &[(name, default)]).expect(name);
            assert_eq!(gate, *name);
            assert!(
                problem.ends_with(&format!("`{name}`, which it does not have")),
                "{problem}"
            );
        }
    }

    #[test]
    fn a_locked_gate_and_one_without_what_it_needs_are_refused() {
        let gate = |name: &str, is_on: bool| refused("1.37.0", &[(name, is_on)]);
        assert_eq!(gate("DRAAdminAccess", true), None);
        let (_, problem) = gate("DRAAdminAccess", false).expect("it is locked");
        assert!(problem.ends_with("which is locked to true"), "{problem}");
        let (gate, problem) =
            gate("MatchLabelKeysInPodTopologySpread", false).expect("another needs it");
        assert_eq!(gate, "MatchLabelKeysInPodTopologySpread");
        assert!(
            problem.ends_with("on and `MatchLabelKeysInPodTopologySpread` off"),
            "{problem}"
        );
        let all = [("AllBeta", false), ("CompositePodGroup", true)];
        assert_eq!(
            refused("1.37.0", &all),
            None,
            "what all of them are is not known"
        );
        let (gate, _) = refused("1.37.0", &all[1..]).expect("it needs others");
        assert_eq!(gate, "CompositePodGroup");
    }
}
