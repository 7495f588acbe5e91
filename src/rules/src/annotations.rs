//! Remarks on a machine deployment: annotations with values that no kubelet accepts or that it
//! takes otherwise than they seem, with names that nothing reads, or in the wrong place, a kubelet
//! that is not supported, and a name by which documents are overridden.

use std::collections::BTreeMap;

use kube_core::ResourceExt as _;

use super::{document::field, kubelet, rule::Rule, shape::similar};
use osm_api::{
    machine_deployment::MachineDeployment,
    names::{PROFILE, PROFILE_NAMESPACE},
};
use osm_render::kubelet::{
    FEATURE_GATES_PREFIX, SETTINGS, faults, faults_of_version, setting, surprises,
};

/// The field that annotations are read from.
const OWN: &str = "metadata.annotations";
/// The field of the machines' annotations.
const TEMPLATE: &str = "spec.template.metadata.annotations";
/// The field of its name.
const NAME: &str = "metadata.name";
/// The field of the kubelet's version.
const KUBELET: &str = "spec.template.spec.versions.kubelet";

/// A field that does not do what its author expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The rule of the linter.
    pub rule: Rule,
    /// The field of the machine deployment.
    pub field: String,
    /// What is wrong, starting with the field.
    pub message: String,
    /// How to correct it.
    pub fix: String,
}

impl Remark {
    fn new(rule: Rule, (map, key): (&str, &str), problem: &str, fix: String) -> Self {
        let field = field(map, key);
        Self {
            rule,
            message: format!("{field}: {problem}"),
            field,
            fix,
        }
    }

    /// Returns the remark as one sentence.
    pub fn sentence(&self) -> String {
        format!("{}; {}", self.message, self.fix)
    }
}

/// Returns the remarks on a machine deployment.
pub fn remarks(machine_deployment: &MachineDeployment) -> Vec<Remark> {
    let own = machine_deployment.annotations();
    let template = machine_deployment.spec.template.metadata.as_ref();
    let template = template.and_then(|metadata| metadata.annotations.as_ref());
    let versions = &machine_deployment.spec.template.spec.versions;
    let mut remarks = refused(own);
    remarks.extend(refused_by(&versions.kubelet, own));
    remarks.extend(surprising(own));
    remarks.extend(own.keys().filter_map(|key| unknown(key)));
    let misplaced = template.into_iter().flat_map(BTreeMap::keys);
    remarks.extend(misplaced.filter(|key| is_ours(key)).map(|key| {
        let problem = "it has no effect here, because only those of the machine deployment itself \
                       are read";
        let fix = format!("move it to {OWN}");
        Remark::new(Rule::MISPLACED_ANNOTATION, (TEMPLATE, key), problem, fix)
    }));
    let kubelet = kubelet::unsupported(&versions.kubelet);
    remarks.extend(kubelet.map(|problem| Remark {
        rule: Rule::UNSUPPORTED_KUBELET,
        field: KUBELET.to_owned(),
        message: format!("{KUBELET}: {problem}"),
        fix: "write a version that Kubernetes has released, of one of these minors".to_owned(),
    }));
    remarks.extend(overridden(&machine_deployment.name_any()));
    remarks
}

/// Remarks on a name by which cloud-init reads the document before files of the image.
fn overridden(name: &str) -> Option<Remark> {
    let message = format!(
        "{NAME}: cloud-init reads /etc/cloud/cloud.cfg.d by name, so that files of the image such as \
         90_dpkg.cfg may override `{name}-…`"
    );
    name.starts_with(|it: char| it.is_ascii_digit())
        .then(|| Remark {
            rule: Rule::DOCUMENT_ORDER,
            field: NAME.to_owned(),
            message,
            fix: "begin the name with a letter".to_owned(),
        })
}

fn surprising(own: &BTreeMap<String, String>) -> Vec<Remark> {
    let fix = |name: Option<&str>| match name {
        Some("EvictionHard") => "name them, too, unless that is intended",
        _ => "write a positive number",
    };
    let found = surprises(own).into_iter().map(|found| {
        let fix = fix(setting(&found.annotation)).to_owned();
        let place = (OWN, found.annotation.as_str());
        Remark::new(Rule::KUBELET_EFFECT, place, &found.reason, fix)
    });
    found.collect()
}

fn refused(own: &BTreeMap<String, String>) -> Vec<Remark> {
    let faults = faults(own).into_iter();
    faults
        .map(|fault| {
            let fix = "write a value that a kubelet accepts; with this one, no machine is created";
            let place = (OWN, fault.annotation.as_str());
            Remark::new(
                Rule::KUBELET_ANNOTATION,
                place,
                &fault.reason,
                fix.to_owned(),
            )
        })
        .collect()
}

fn refused_by(kubelet: &str, own: &BTreeMap<String, String>) -> Vec<Remark> {
    let faults = faults_of_version(own, kubelet).into_iter();
    let remarks = faults.map(|fault| {
        let fix = "remove it; where the tenant's settings allow it, no machine is created with it";
        let place = (OWN, fault.annotation.as_str());
        let rule = Rule::KUBELET_ANNOTATION;
        Remark::new(rule, place, &fault.reason, fix.to_owned())
    });
    remarks.collect()
}

fn unknown(key: &str) -> Option<Remark> {
    let name = setting(key).filter(|name| !SETTINGS.contains(name))?;
    let fix = match similar(name, SETTINGS.into_iter()) {
        Some(known) => format!("did you mean `{known}`?"),
        None => format!("write one of {}", SETTINGS.join(", ")),
    };
    let problem = format!("no kubelet setting `{name}` exists, and nothing reads it");
    let place = (OWN, key);
    Some(Remark::new(Rule::UNKNOWN_ANNOTATION, place, &problem, fix))
}

/// Returns true for the key of an annotation that is read from a machine deployment.
fn is_ours(key: &str) -> bool {
    [PROFILE, PROFILE_NAMESPACE].contains(&key)
        || key.starts_with(FEATURE_GATES_PREFIX)
        || setting(key).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use osm_api::names::KUBELET_CONFIGURATION;

    const KUBELET: &str = "v1.kubelet-config.machine-controller.kubermatic.io";

    #[test]
    fn each_annotation_without_its_effect_has_a_remark() {
        let key = |name: &str| format!("{KUBELET}/{name}");
        let machine_deployment = serde_json::from_value(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1",
            "kind": "MachineDeployment",
            "metadata": {"name": "workers", "annotations": {
                key("MaxPods"): "-1",
                key("evictionhard"): "",
                key("EvictionHard"): "memory.available<100Mi,nodefs.available<10%",
                key("Bogus"): "1",
                key("KubeReserved"): "cpu=1",
                PROFILE: "osp-ubuntu",
                "example.com/other": "x",
            }},
            "spec": {"template": {"metadata": {"annotations": {
                key("KubeReserved"): "cpu=1",
                PROFILE: "osp-ubuntu",
                "example.com/other": "x",
            }}}},
        }));
        let found = remarks(&machine_deployment.expect("it is a machine deployment"));
        let expected = [
            format!(
                "metadata.annotations.{KUBELET}/MaxPods: -1 must not be negative; write a value \
                 that a kubelet accepts; with this one, no machine is created"
            ),
            format!(
                "metadata.annotations.{KUBELET}/EvictionHard: no pod is evicted any more by \
                 imagefs.available, nodefs.inodesFree; name them, too, unless that is intended"
            ),
            format!(
                "metadata.annotations.{KUBELET}/Bogus: no kubelet setting `Bogus` exists, and \
                 nothing reads it; write one of {}",
                SETTINGS.join(", ")
            ),
            format!(
                "metadata.annotations.{KUBELET}/evictionhard: no kubelet setting `evictionhard` \
                 exists, and nothing reads it; did you mean `EvictionHard`?"
            ),
            format!(
                "{TEMPLATE}.{PROFILE}: it has no effect here, because only those of the machine \
                 deployment itself are read; move it to metadata.annotations"
            ),
            format!(
                "{TEMPLATE}.{KUBELET}/KubeReserved: it has no effect here, because only those of \
                 the machine deployment itself are read; move it to metadata.annotations"
            ),
        ];
        let found: Vec<String> = found.iter().map(Remark::sentence).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_a_kubelet_of_its_version_does_not_start_with_has_a_remark() {
        let gate = "AnyVolumeDataSource";
        let remarked = |version: &str, annotations: serde_json::Value| {
            let machine_deployment = serde_json::from_value(json!({
                "apiVersion": "cluster.k8s.io/v1alpha1",
                "kind": "MachineDeployment",
                "metadata": {"name": "workers", "annotations": annotations},
                "spec": {"template": {"spec": {"versions": {"kubelet": version}}}},
            }));
            let found = remarks(&machine_deployment.expect("it is a machine deployment"));
            let found: Vec<String> = found.iter().map(Remark::sentence).collect();
            found.join("\n")
        };
        let gated = |value: &str| json!({format!("{FEATURE_GATES_PREFIX}{gate}"): value});
        for (version, annotations, expected) in [
            (
                "1.37.0",
                gated("true"),
                "kubelet 1.37 does not start with the feature gate `AnyVolumeDataSource`, which it \
                 does not have; remove it; where",
            ),
            ("1.36.0", gated("true"), ""),
            ("1.37.0", gated("maybe"), "must be \"true\" or \"false\""),
            (
                "1.34.0",
                json!({KUBELET_CONFIGURATION: r#"{"maxpods": 1}"#}),
                "`maxpods`: kubelet 1.34 does not have this field; remove it",
            ),
            (
                "1.34.0",
                json!({KUBELET_CONFIGURATION: r#"{"podPidsLimit": 1}"#}),
                "",
            ),
        ] {
            let found = remarked(version, annotations);
            assert!(
                found.contains(expected) && found.is_empty() == expected.is_empty(),
                "{found}"
            );
        }
    }

    #[test]
    fn what_a_kubelet_or_cloud_init_takes_otherwise_than_it_seems_is_said() {
        let machine_deployment = serde_json::from_value(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1",
            "kind": "MachineDeployment",
            "metadata": {"name": "4-workers", "annotations": {
                format!("{KUBELET}/MaxPods"): "0",
                format!("{KUBELET}/EvictionHard"): "imagefs.available<15%,memory.available<1Gi,\
                    nodefs.available<10%,nodefs.inodesFree<5%",
            }},
            "spec": {"template": {}},
        }));
        let found = remarks(&machine_deployment.expect("it is a machine deployment"));
        let expected = [
            format!(
                "metadata.annotations.{KUBELET}/MaxPods: a kubelet takes 0 as its default, 110; \
                 write a positive number"
            ),
            "metadata.name: cloud-init reads /etc/cloud/cloud.cfg.d by name, so that files of the \
             image such as 90_dpkg.cfg may override `4-workers-…`; begin the name with a letter"
                .to_owned(),
        ];
        let found: Vec<String> = found.iter().map(Remark::sentence).collect();
        assert_eq!(found, expected);
    }
}
