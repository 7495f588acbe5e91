//! Go templates that try to exceed their limits by means of their own. `tests/hostile` has the
//! others, and measures what they cost.

use super::{super::fixtures::World, *};
use osm_api::profile::TemplateLanguage;

fn a_go_world() -> World {
    let mut world = a_world();
    world.profile.template_language = Some(TemplateLanguage::GoTemplate);
    world
}

#[test]
fn maps_hung_under_one_another_are_freed_without_recursion() {
    for (open, close) in [("", ""), ("list (list ", ")")] {
        let template = format!(
            "{{{{ $top := dict }}}}{{{{ $leaf := $top }}}}{{{{ range until 4000 }}}}\
             {{{{ $new := dict }}}}{{{{ $_ := set $leaf \"a\" ({open}$new{close}) }}}}\
             {{{{ $leaf = $new }}}}{{{{ end }}}}ok"
        );
        assert_eq!(a_go_world().text(&template), Ok("ok".to_owned()));
    }
}

#[test]
fn a_document_cannot_blow_up() {
    let aliases = "a: &a [x,x,x,x,x,x,x,x,x]\\n".to_owned()
        + &["b", "c", "d", "e", "f", "g"]
            .iter()
            .zip(["a", "b", "c", "d", "e", "f"])
            .map(|(name, of)| {
                let items = vec![format!("*{of}"); 9].join(",");
                format!("{name}: &{name} [{items}]\\n")
            })
            .collect::<Vec<_>>()
            .concat();
    let template = format!("{{{{ hasKey (fromYaml \"{aliases}\") \"Error\" }}}}");
    assert_eq!(a_go_world().text(&template), Ok("true".to_owned()));
    for (open, close) in [("[", "]"), ("{a: ", "}")] {
        let text = open.repeat(1000) + &close.repeat(1000);
        let template = format!("{{{{ hasKey (fromYaml \"{text}\") \"Error\" }}}}");
        assert_eq!(a_go_world().text(&template), Ok("true".to_owned()));
    }
    let text = "[".repeat(100_000);
    for function in ["fromJson", "fromToml", "fromYaml"] {
        let template = format!("{{{{ hasKey ({function} \"a = {text}\") \"Error\" }}}}");
        assert_eq!(
            a_go_world().text(&template),
            Ok("true".to_owned()),
            "{function}"
        );
    }
}

#[test]
fn what_go_templates_may_nest_fits_on_a_small_stack() {
    let deep = |open: &str, close: &str, count: usize| {
        format!("{}x{}", open.repeat(count), close.repeat(count))
    };
    let or = "(or 0 (and 1 ".repeat(7) + "(toString (upper \"a\"))" + &"))".repeat(7);
    let chain = "{{ if 0 }}".to_owned() + &"{{ else if 0 }}".repeat(60) + "{{ else }}";
    let inner = format!("{chain}{{{{ {or} }}}}{{{{ end }}}}");
    let templates = [
        deep("{{ if true }}", "{{ end }}", 24),
        deep("{{ range until 1 }}", "{{ end }}", 24),
        format!(
            "{}{inner}{}",
            "{{ if true }}".repeat(23),
            "{{ end }}".repeat(23)
        ),
        format!("{{{{ {or} }}}}"),
        "{{ define \"f\" }}{{ if gt . 0 }}{{ template \"f\" (sub . 1) }}{{ end }}{{ end }}{{ template \"f\" 12 }}".to_owned(),
    ];
    let render_all = move || {
        for template in templates {
            a_go_world().text(&template).unwrap();
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    thread.spawn(render_all).unwrap().join().unwrap();
}

/// Known templates with bytes changed, moved and repeated, in the same way in each run.
#[test]
fn ten_thousand_broken_templates_render_or_are_refused() {
    #[derive(serde::Deserialize)]
    struct Case {
        template: String,
    }
    let golden = include_str!("../../../../tests/golden/go-templates.json");
    let cases: Vec<Case> = serde_json::from_str(golden).unwrap();
    let mut seed = 1_u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % u64::try_from(below.max(1)).unwrap()).unwrap()
    };
    let parts = [
        "{{",
        "}}",
        "(",
        ")",
        "|",
        ".",
        "$",
        "\"",
        "`",
        "-",
        " ",
        "0",
        "9",
        "%",
        "\\",
        "'",
        "ä",
        "nil",
        "-1",
        "1.5",
        "list",
        "dict",
        "{{ end }}",
        "{{ else }}",
        "\n",
        ":=",
        "=",
        "/*",
    ];
    let mut world = a_go_world();
    for round in 0..10_000 {
        let mut template: Vec<char> = cases[round % cases.len()].template.chars().collect();
        for _ in 0..=next(3) {
            let at = next(template.len());
            match next(3) {
                0 if !template.is_empty() => drop(template.remove(at)),
                1 => {
                    let part: Vec<char> = parts[next(parts.len())].chars().collect();
                    template.splice(at..at, part);
                }
                _ => {
                    let until = (at + next(12)).min(template.len());
                    let moved: Vec<char> = template.drain(at..until).collect();
                    let at = next(template.len());
                    template.splice(at..at, moved);
                }
            }
        }
        let template: String = template.into_iter().collect();
        world.limits.fuel = 20_000;
        let _ = world.text(&template);
    }
}

#[test]
fn what_is_interpreted_twice_is_bounded() {
    let mut world = a_go_world();
    let half = &mut world.profile.provisioning_config;
    let text = "{{ repeat 60000 \"{{`{{`}}\" }}";
    half.templates.insert("a".to_owned(), text.to_owned());
    half.files = (0..50)
        .map(|index| a_file(&format!("/{index}"), "x"))
        .collect();
    let error = world.render().unwrap_err();
    assert!(error.category().starts_with("template"), "{error}");
    let half = &mut world.profile.provisioning_config;
    half.templates.clear();
    let text = "{{ `{{ template \"a\" }}` }}";
    half.templates.insert("a".to_owned(), text.to_owned());
    half.files = vec![a_file("/f", "{{ template \"a\" }}")];
    assert_eq!(world.render().unwrap_err().category(), "template");
}
