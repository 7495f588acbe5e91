//! Compares every function of Go templates, with every field of the data, with what Go renders: the
//! result must be the same text or an error. A different text would reach a machine unnoticed.
//!
//! `tests/oracle` creates the golden files. These tests do not need Go.

use std::collections::BTreeSet;

use minijinja::Value;

use super::{
    super::{data::ValidInput, engine, error::Half, fixtures::World, go_template, template},
    go_templates::a_go_world,
    *,
};

const GOLDEN: &str = include_str!("../../../../tests/golden/go-fields.jsonl");
/// What Go renders and this program refuses: templates, and the fields for which it does.
const REFUSED: &str = include_str!("../../../../tests/golden/go-fields-refused.txt");
/// If set, prints a new list of refusals instead of comparing with it.
const UPDATE: &str = "UPDATE_REFUSED";

/// A template with the result for each field. `@` stands for the field.
#[derive(serde::Deserialize)]
struct Row {
    template: String,
    /// The indexes of fields by their output.
    outputs: BTreeMap<String, Vec<usize>>,
    /// The indexes of the fields for which Go fails.
    #[serde(default)]
    failed: Vec<usize>,
}

type Variables = BTreeMap<&'static str, Value>;

/// The data of the oracle: either everything is set, or nothing that is optional.
fn a_filled_world() -> World {
    let mut world = a_go_world();
    world.kubelet_version = "1.34.1-rc.2".to_owned();
    world.provider_spec = serde_json::json!({
        "operatingSystem": "flatcar",
        "cloudProvider": "aws",
        "operatingSystemSpec": {"disableAutoUpdate": true, "provisioningUtility": "ignition"},
        "network": {
            "cidr": "10.1.0.2/24",
            "gateway": "10.1.0.1",
            "dns": {"servers": ["10.1.0.3", "10.1.0.4"]},
            "ipFamily": "IPv4+IPv6",
        },
    });
    world.settings.no_proxy = Some("localhost,10.0.0.0/8".to_owned());
    for (name, value) in [
        ("EvictionHard", "memory.available<100Mi"),
        ("ImageGCHighThresholdPercent", "85"),
        ("ImageGCLowThresholdPercent", "0"),
        ("ImageMinimumGCAge", "90ns"),
        ("ImageMaximumGCAge", "0s"),
        ("ContainerLogMaxSize", "3.9"),
        ("ContainerLogMaxFiles", "5"),
    ] {
        let name = format!("v1.kubelet-config.machine-controller.kubermatic.io/{name}");
        world.annotations.insert(name, value.to_owned());
    }
    world
}

fn a_bare_world() -> World {
    let mut world = a_world();
    world.provider_spec = serde_json::json!({"operatingSystem": "ubuntu", "cloudProvider": "aws"});
    world.settings.cluster_dns = Vec::new();
    world.settings.kubelet_feature_gates.clear();
    world
}

/// Returns the variables of a world, with some texts replaced.
fn variables(world: &World, texts: &[(&'static str, &str)]) -> Variables {
    let profile = template::CompiledProfile::compile(&world.profile).unwrap();
    let provider = input::ProviderConfig::decode(&world.provider_spec).unwrap();
    let valid = ValidInput::new(world.input(&profile, &provider)).unwrap();
    let mut data = valid.template_data().inline;
    data.extend(texts.iter().map(|(name, text)| (*name, Value::from(*text))));
    if !world.settings.kubelet_feature_gates.is_empty() {
        // No kubelet has the gates that Go was asked about.
        let gates = Value::from_pairs([("A", true), ("B", false), ("C", true)]);
        data.insert("KubeletFeatureGates", gates);
    }
    go_template::variables(&data)
}

fn filled() -> Variables {
    variables(
        &a_filled_world(),
        &[
            ("CloudConfig", "a: [b]\n"),
            ("ContainerRuntimeConfig", "[a]\nb = 1\n"),
            ("InitialTaints", "k=v:NoSchedule"),
            ("PauseImage", "pause:3.10"),
            ("BootstrapKubeconfig", "{\"a\": [1]}"),
            ("KubernetesCACert", "CA <&> \"ä\""),
            ("HostCACert", "0x1F"),
            ("Token", "-7"),
            ("ServerURL", "https://u:p@h.example.com:6443/a?b=c#d"),
            ("SecretName", "a-b-c"),
            ("BootstrapKubeconfigSecretName", "true"),
        ],
    )
}

/// Renders a template as the only file, without a document around it.
fn rendered(variables: &Variables, template: &str) -> Result<String, RenderError> {
    let mut profile = a_world().profile;
    profile.provisioning_config.files = vec![a_file("/f", template)];
    let half = go_template::GoHalf::compile(&profile, Half::Provisioning)?;
    let limits = Limits::default();
    let pass = go_template::Pass {
        limits: &limits,
        fuel: &engine::start(&limits, go_template::printed_parts),
        inline: variables,
        marked: variables,
        marked_names: &[],
    };
    Ok(half.render(&pass)?.0.concat())
}

/// Returns true if a text is the one wanted, or differs where we differ from Go on purpose: the age
/// of an image prints as a kubelet reads it, and errors of documents have different words.
fn is_right(found: &str, wanted: &str) -> bool {
    let mut plain = wanted.to_owned();
    for (mark, end) in [
        ("&Duration{Duration:", ",}"),
        ("&amp;Duration{Duration:", ",}"),
        ("\\u0026Duration{Duration:", ",}"),
        ("\\u0026Duration\\u007BDuration:", ",}"),
        ("%26Duration%7BDuration%3A", "%2C%7D"),
    ] {
        if plain.contains(mark) {
            plain = plain.replace(mark, "").replace(end, "");
        }
    }
    let is_error = |text: &str| text.starts_with("map[Error:");
    found == wanted || found == plain || is_error(found) && is_error(wanted)
}

#[test]
fn every_function_gives_what_go_gives_of_every_field_or_refuses() {
    let mut lines = GOLDEN.lines();
    let mut list = || -> Vec<String> { serde_json::from_str(lines.next().unwrap()).unwrap() };
    let (filled_fields, bare_fields) = (list(), list());
    let (filled, bare) = (filled(), variables(&a_bare_world(), &[("KubeVersion", "")]));
    let place = |index: usize| {
        if let Some(field) = filled_fields.get(index) {
            (&filled, field.clone(), field.clone())
        } else {
            let field = &bare_fields[index - filled_fields.len()];
            (&bare, field.clone(), format!("unset {field}"))
        }
    };
    let (mut wrong, mut refused, mut count) = (Vec::new(), BTreeSet::new(), 0);
    for line in lines {
        let row: Row = serde_json::from_str(line).unwrap();
        let outputs = row.outputs.iter();
        let wanted = outputs
            .flat_map(|(output, fields)| fields.iter().map(move |at| (*at, Some(output))))
            .chain(row.failed.iter().map(|at| (*at, None)));
        for (at, wanted) in wanted {
            let (data, field, name) = place(at);
            let called = format!("({field}).");
            let text = row.template.replace("@.", &called).replace('@', &field);
            count += 1;
            match (rendered(data, &text), wanted) {
                (Err(_), None) => {}
                (Ok(found), Some(wanted)) if is_right(&found, wanted) => {}
                // The list contains the errors of the document, in different words.
                (Ok(_), Some(_)) if row.template.contains("Array @") => {}
                (Err(_), Some(_)) => {
                    refused.insert(format!("{}\t{name}", row.template));
                }
                (Ok(found), wanted) => {
                    wrong.push(format!("{}\t{name}\t{wanted:?}\t{found:?}", row.template));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    if std::env::var_os(UPDATE).is_some() {
        let lines: Vec<&str> = refused.iter().map(String::as_str).collect();
        std::fs::write(
            "tests/golden/go-fields-refused.txt",
            lines.join("\n") + "\n",
        )
        .unwrap();
        return;
    }
    let known: BTreeSet<String> = REFUSED.lines().map(str::to_owned).collect();
    let new: Vec<&String> = refused.difference(&known).collect();
    let gone: Vec<&String> = known.difference(&refused).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "refused and not listed: {new:#?}\nlisted and not refused: {gone:#?}\n{UPDATE}=1 writes \
         the list"
    );
}
