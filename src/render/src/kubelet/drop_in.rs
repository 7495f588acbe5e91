//! Fields of the kubelet's configuration that a tenant or a machine deployment sets. They are files
//! of their own, which the kubelet reads after its configuration.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::{known::Known, values::is_quantity};
use crate::{duration::GoDuration, error::RenderError};
use osm_api::names::KUBELET_CONFIGURATION;
use osm_tenant::settings::TenantSettings;

/// Where the kubelet looks for the files. It reads them by name, and of two values of a field the
/// later one counts.
pub const FOLDER: &str = "/etc/kubernetes/kubelet.conf.d";
/// What a kubelet's command line needs, so that it looks there.
pub(crate) const WORDS: [&str; 2] = ["--config-dir", FOLDER];
const OF_TENANT: &str = "10-tenant.conf";
const OF_MACHINE_DEPLOYMENT: &str = "20-machine-deployment.conf";

/// How large one of them may be: a kubelet's whole configuration takes a tenth.
const BYTES_MAX: usize = 32 << 10;

/// Where the fields belong that are set otherwise.
const IN_PROFILE: &str = "the profile sets it for all nodes";
const BY_ANNOTATION: &str = "an annotation of the machine deployment of its name sets it";

/// The fields that are set otherwise, with how.
const ELSEWHERE: [(&str, &str); 33] = [
    ("apiVersion", IN_PROFILE),
    ("authentication", IN_PROFILE),
    ("authorization", IN_PROFILE),
    ("cgroupDriver", IN_PROFILE),
    ("clusterDNS", "the tenant's setting clusterDNS sets it"),
    ("clusterDomain", IN_PROFILE),
    ("containerLogMaxFiles", BY_ANNOTATION),
    ("containerLogMaxSize", BY_ANNOTATION),
    ("containerRuntimeEndpoint", IN_PROFILE),
    ("evictionHard", BY_ANNOTATION),
    ("failCgroupV1", IN_PROFILE),
    (
        "featureGates",
        "the tenant's setting kubeletFeatureGates sets it",
    ),
    ("healthzBindAddress", IN_PROFILE),
    ("healthzPort", IN_PROFILE),
    ("imageGCHighThresholdPercent", BY_ANNOTATION),
    ("imageGCLowThresholdPercent", BY_ANNOTATION),
    ("imageMaximumGCAge", BY_ANNOTATION),
    ("imageMinimumGCAge", BY_ANNOTATION),
    ("kind", IN_PROFILE),
    ("kubeReserved", BY_ANNOTATION),
    ("maxParallelImagePulls", IN_PROFILE),
    ("maxPods", BY_ANNOTATION),
    ("protectKernelDefaults", IN_PROFILE),
    ("readOnlyPort", IN_PROFILE),
    (
        "registerWithTaints",
        "the tenant's setting initialTaints sets it",
    ),
    ("resolvConf", IN_PROFILE),
    ("rotateCertificates", IN_PROFILE),
    ("serializeImagePulls", IN_PROFILE),
    ("serverTLSBootstrap", IN_PROFILE),
    ("staticPodPath", IN_PROFILE),
    ("systemReserved", BY_ANNOTATION),
    ("tlsCipherSuites", IN_PROFILE),
    ("volumePluginDir", IN_PROFILE),
];

/// Returns the files by path.
pub(crate) fn drop_ins(
    annotations: &BTreeMap<String, String>,
    settings: &TenantSettings,
    version: &str,
) -> Result<BTreeMap<String, String>, RenderError> {
    let mut files = BTreeMap::new();
    let of_tenant = &settings.kubelet.fields;
    if !of_tenant.is_empty() {
        let text = drop_in(of_tenant, version)
            .map_err(|reason| RenderError::KubeletConfiguration { reason })?;
        files.insert(format!("{FOLDER}/{OF_TENANT}"), text);
    }
    let own = annotations.get(KUBELET_CONFIGURATION);
    if let Some(own) = own.filter(|_| settings.kubelet.from_annotations) {
        let refused = |reason: String| RenderError::KubeletAnnotation {
            annotation: KUBELET_CONFIGURATION.to_owned(),
            reason,
        };
        let text = parsed(own)
            .and_then(|fields| drop_in(&fields, version))
            .map_err(refused)?;
        files.insert(format!("{FOLDER}/{OF_MACHINE_DEPLOYMENT}"), text);
    }
    Ok(files)
}

fn parsed(text: &str) -> Result<Map<String, Json>, String> {
    if text.len() > BYTES_MAX {
        return Err(format!("it takes more than {BYTES_MAX} bytes"));
    }
    // Of JSON, no parser reads more than the text is long.
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("it must be a JSON object of the kubelet's fields: line {line}, column {column}")
    })
}

/// Returns the text of a file.
fn drop_in(fields: &Map<String, Json>, version: &str) -> Result<String, String> {
    let known = Known::of(version).ok_or_else(|| {
        format!("what kubelet {version} accepts is not known, since it is not supported")
    })?;
    for (name, value) in fields {
        if let Some((_, how)) = ELSEWHERE.iter().find(|(field, _)| field == name) {
            return Err(format!("`{name}`: {how}"));
        }
        check(name, value, known)?;
    }
    let mut whole = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
    });
    if let Some(whole) = whole.as_object_mut() {
        whole.extend(fields.clone());
    }
    whole.sort_all_objects();
    let text = format!("{whole:#}\n");
    if text.len() > BYTES_MAX {
        return Err(format!("it takes more than {BYTES_MAX} bytes"));
    }
    Ok(text)
}

/// Checks a value by the type of its field.
fn check(path: &str, value: &Json, known: &Known) -> Result<(), String> {
    let Some(kind) = known.field(path) else {
        return Err(format!(
            "`{path}`: kubelet 1.{} does not have this field",
            known.minor()
        ));
    };
    let must = |what: &str| Err(format!("`{path}`: it must be {what}"));
    let within = |least: i64, most: i64| {
        let number = value.as_i64();
        number.is_some_and(|number| (least..=most).contains(&number))
    };
    match (kind, value) {
        ("object", Json::Object(fields)) => fields
            .iter()
            .try_for_each(|(name, value)| check(&format!("{path}.{name}"), value, known)),
        ("map", Json::Object(entries)) => entries
            .values()
            .try_for_each(|value| check(&format!("{path}{{}}"), value, known)),
        ("list", Json::Array(elements)) => elements
            .iter()
            .try_for_each(|value| check(&format!("{path}[]"), value, known)),
        ("object" | "map", _) => must("an object"),
        ("list", _) => must("a list"),
        ("string", value) if !value.is_string() => must("a text"),
        ("bool", value) if !value.is_boolean() => must("true or false"),
        ("int32", _) if !within(i32::MIN.into(), i32::MAX.into()) => must("an integer of 32 bits"),
        ("uint32", _) if !within(0, u32::MAX.into()) => must("an integer of 32 bits, from 0"),
        ("int64", value) if !value.is_i64() => must("an integer of 64 bits"),
        ("float64", value) if !value.is_number() => must("a number"),
        ("Duration", value) if !is_duration(value) => must("a duration, such as \"10s\""),
        ("TimeOrMetaDuration", value) if !is_duration(value) && value.as_i64().is_none() => {
            must("a duration, such as \"10s\"")
        }
        ("Quantity" | "QuantityValue", value) if !is_size(value) => {
            must("a quantity, such as \"100Mi\"")
        }
        _ => Ok(()),
    }
}

fn is_duration(value: &Json) -> bool {
    let text = value.as_str();
    text.is_some_and(|text| GoDuration::parse(text).is_ok())
}

fn is_size(value: &Json) -> bool {
    match value {
        Json::String(text) => is_quantity(text),
        Json::Number(number) => number.is_u64(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{World, a_file, a_world, data};

    const UNIT: &str =
        "{% if kubelet_drop_ins %}--config-dir=/etc/kubernetes/kubelet.conf.d{% endif %}";

    fn a_world_with(fields: &Json) -> World {
        let mut world = a_world();
        world.profile.provisioning_config.files = vec![a_file("/unit", UNIT)];
        world.settings.kubelet.fields = fields.as_object().cloned().unwrap_or_default();
        world
    }

    /// The unit's text, and the drop-ins by name.
    fn written(world: &World) -> (String, BTreeMap<String, String>) {
        let rendered = world.render().expect("the fields exist");
        let files = rendered.config.provisioning_config.files;
        let drop_ins = files.iter().filter_map(|file| {
            let name = file.path.strip_prefix(FOLDER)?;
            Some((name.to_owned(), data(file)))
        });
        (data(&files[0]), drop_ins.collect())
    }

    #[test]
    fn fields_of_the_tenant_and_of_the_machine_deployment_are_files_of_their_own() {
        let none = written(&a_world_with(&json!({})));
        assert_eq!(none, (String::new(), BTreeMap::new()));
        let fields = json!({"cpuManagerPolicy": "static", "shutdownGracePeriod": "30s"});
        let mut world = a_world_with(&fields);
        let own = r#"{"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]}"#;
        let annotation = KUBELET_CONFIGURATION.to_owned();
        world.annotations.insert(annotation, own.to_owned());
        let (unit, files) = written(&world);
        assert_eq!(unit, format!("--config-dir={FOLDER}"));
        let names: Vec<_> = files.keys().collect();
        assert_eq!(names, ["/10-tenant.conf"], "the annotation is not read");
        let of_tenant: Json = serde_json::from_str(&files["/10-tenant.conf"]).expect("it is JSON");
        assert_eq!(of_tenant["kind"], "KubeletConfiguration");
        assert_eq!(of_tenant["shutdownGracePeriod"], "30s");
        world.settings.kubelet.from_annotations = true;
        let (_, files) = written(&world);
        let last = &files["/20-machine-deployment.conf"];
        assert!(last.contains("\"numaNode\": 0"), "{last}");
    }

    #[test]
    fn what_a_kubelet_does_not_read_so_is_refused_by_its_field() {
        for (fields, told) in [
            (json!({"maxPods": 3}), "`maxPods`: an annotation"),
            (
                json!({"featureGates": {}}),
                "`featureGates`: the tenant's setting kubeletFeatureGates",
            ),
            (
                json!({"authentication": {}}),
                "`authentication`: the profile sets it",
            ),
            (
                json!({"cpuManagerpolicy": "none"}),
                "`cpuManagerpolicy`: kubelet 1.34 does not have",
            ),
            (
                json!({"logging": {"format": 1}}),
                "`logging.format`: it must be a text",
            ),
            (json!({"logging": []}), "`logging`: it must be an object"),
            (
                json!({"logging": {"verbosity": -1}}),
                "`logging.verbosity`: it must be an integer of 32 bits, from 0",
            ),
            (
                json!({"podPidsLimit": "1"}),
                "`podPidsLimit`: it must be an integer of 64 bits",
            ),
            (
                json!({"nodeStatusMaxImages": 2.5}),
                "`nodeStatusMaxImages`: it must be an integer of 32 bits",
            ),
            (
                json!({"enableServer": "true"}),
                "`enableServer`: it must be true or false",
            ),
            (
                json!({"shutdownGracePeriod": 30}),
                "`shutdownGracePeriod`: it must be a duration",
            ),
            (
                json!({"allowedUnsafeSysctls": "a"}),
                "`allowedUnsafeSysctls`: it must be a list",
            ),
            (
                json!({"evictionSoft": {"memory.available": 1}}),
                "`evictionSoft{}`: it must be a text",
            ),
            (
                json!({"memoryThrottlingFactor": "1"}),
                "`memoryThrottlingFactor`: it must be a number",
            ),
            (
                json!({"allowedUnsafeSysctls": ["a".repeat(BYTES_MAX)]}),
                "more than 32768 bytes",
            ),
        ] {
            let error = a_world_with(&fields).render().expect_err(told).to_string();
            assert!(
                error.starts_with("settings, kubeletConfiguration, "),
                "{error}"
            );
            assert!(error.contains(told), "{error}");
        }
        let mut world = a_world_with(&json!({}));
        world.settings.kubelet.from_annotations = true;
        let annotation = KUBELET_CONFIGURATION.to_owned();
        world.annotations.insert(annotation, "{\"a\": ".to_owned());
        let error = world.render().expect_err("it ends too early").to_string();
        let told = format!("annotation {KUBELET_CONFIGURATION}: it must be a JSON object");
        assert!(error.contains(&told), "{error}");
    }

    #[test]
    fn a_profile_that_does_not_let_the_kubelet_read_them_is_refused() {
        let mut world = a_world_with(&json!({"cpuManagerPolicy": "static"}));
        world.profile.provisioning_config.files = vec![a_file("/unit", "kubelet")];
        let error = world
            .render()
            .expect_err("it would have no effect")
            .to_string();
        assert!(
            error.contains("--config-dir=/etc/kubernetes/kubelet.conf.d"),
            "{error}"
        );
        world.kubelet_version = "1.33.1".to_owned();
        let error = world.render().expect_err("it is not known").to_string();
        assert!(
            error.contains("kubelet v1.33.1 accepts is not known"),
            "{error}"
        );
    }
}
