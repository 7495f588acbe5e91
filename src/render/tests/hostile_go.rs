//! Go templates that want more than their share.

use super::{super::fixtures::World, *};
use crate::api::profile::TemplateLanguage;

fn a_go_world() -> World {
    let mut world = a_world();
    world.profile.template_language = Some(TemplateLanguage::GoTemplate);
    world
}

/// The category of the error that a template ends with.
fn refused(template: &str) -> &'static str {
    let error = a_go_world().text(template).unwrap_err();
    let category = error.category();
    assert!(category.starts_with("template"), "{template}: {error}");
    category
}

fn check_work(templates: &[&str]) {
    for template in templates {
        let category = refused(template);
        let is_bounded = matches!(
            category,
            "template-work" | "template-fuel" | "template-output"
        );
        assert!(is_bounded, "{template}: {category}");
    }
}

#[test]
fn a_go_text_cannot_grow_without_bound() {
    let doubled = |expression: &str| {
        format!(
            "{{{{ $x := \"aaaaaaaa\" }}}}{{{{ range until 1000 }}}}{{{{ $x = {expression} }}}}{{{{ end }}}}"
        )
    };
    for expression in [
        "print $x $x",
        "printf \"%s%s\" $x $x",
        "cat $x $x",
        "join $x (list $x $x $x)",
        "replace \"a\" $x $x",
        "repeat 2 $x",
        "nindent 2 (print $x \"\\n\" $x)",
        "toJson (list $x $x)",
        "toYaml (list $x $x)",
        "b64enc $x",
        "regexReplaceAll \"a\" $x $x",
        "regexReplaceAllLiteral \"a\" $x $x",
        "wrapWith 1 $x $x",
        "quote $x $x",
    ] {
        check_work(&[&doubled(expression)]);
    }
    let unrolled = "{{ $x = print $x $x }}".repeat(60);
    check_work(&[
        &format!("{{{{ $x := \"aaaaaaaa\" }}}}{unrolled}"),
        "{{ repeat 100000000 \"a\" }}",
        "{{ indent 100000000 \"a\" }}",
        "{{ nindent 100000000 \"a\" }}",
        "{{ range until 1000 }}{{ $x := printf \"%1000000d\" 1 }}{{ end }}",
        "{{ define \"m\" }}{{ . }}{{ . }}{{ end }}{{ range until 2000 }}{{ template \"m\" (repeat 9000 \"a\") }}{{ end }}",
        "{{ range until 20000 }}{{ repeat 9000 \"raw\" | upper | trunc 1 }}{{ end }}",
    ]);
    assert_eq!(refused("{{ printf \"%100000000d\" 1 }}"), "template");
    assert_eq!(refused("{{ printf \"%.1000000f\" 1.0 }}"), "template");
}

#[test]
fn a_go_list_cannot_grow_without_bound() {
    check_work(&[
        "{{ until 100000000 }}",
        "{{ untilStep 0 9223372036854775807 1 }}",
        "{{ untilStep -9223372036854775807 9223372036854775807 1 }}",
        "{{ seq 1 100000000 }}",
        "{{ range 100000000 }}{{ end }}",
        "{{ $l := list 1 }}{{ range until 1000 }}{{ $l = concat $l $l }}{{ end }}",
        "{{ $l := list }}{{ range until 20000 }}{{ $l = append $l (until 1000) }}{{ end }}",
        "{{ $l := until 9000 }}{{ $x := uniq $l }}",
        "{{ $l := until 9000 }}{{ $x := without $l 1 2 3 4 5 6 7 8 9 }}{{ range until 9999 }}{{ $x = without $l }}{{ end }}",
        "{{ $l := until 90000 }}{{ range until 20000 }}{{ if has 5000000 $l }}{{ end }}{{ end }}",
        "{{ $s := repeat 1000000 \"a\" }}{{ range until 2000 }}{{ $x := splitList \"\" $s }}{{ end }}",
        "{{ $d := dict }}{{ range $i := until 90000 }}{{ $_ := set $d (toString $i) (repeat 200 \"a\") }}{{ end }}",
        "{{ $s := repeat 400000 \"[1],\" }}{{ range until 100 }}{{ $x := fromJsonArray (print \"[\" $s \"1]\") }}{{ end }}",
    ]);
}

#[test]
fn go_maps_cannot_hold_themselves_or_nest_deep() {
    for template in [
        "{{ $d := dict }}{{ $_ := set $d \"a\" $d }}",
        "{{ $d := dict }}{{ $_ := set $d \"a\" (list 1 (list $d)) }}",
        "{{ $d := dict }}{{ $e := dict \"d\" $d }}{{ $_ := set $d \"e\" $e }}",
        "{{ $d := dict }}{{ $e := dict \"d\" $d }}{{ $_ := merge $d $e (dict \"x\" $e) }}",
        "{{ $d := dict }}{{ range until 1000 }}{{ $d = dict \"a\" $d }}{{ end }}",
        "{{ $l := list }}{{ range until 1000 }}{{ $l = list $l }}{{ end }}",
    ] {
        assert_eq!(refused(template), "template", "{template}");
    }
    // Maps that are hung under one another from the inside are freed without recursion.
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
fn a_go_template_cannot_run_for_ever() {
    for template in [
        "{{ range until 90000 }}{{ range until 90000 }}{{ end }}{{ end }}",
        "{{ $l := until 9000 }}{{ range $l }}{{ range $l }}{{ end }}{{ end }}",
        "{{ define \"f\" }}{{ template \"f\" . }}{{ end }}{{ template \"f\" }}",
        "{{ define \"f\" }}{{ template \"g\" . }}{{ end }}{{ define \"g\" }}{{ template \"f\" }}{{ end }}{{ template \"f\" }}",
        "{{ define \"f\" }}{{ range until 9 }}{{ template \"f\" . }}{{ end }}{{ end }}{{ template \"f\" }}",
    ] {
        refused(template);
    }
}

#[test]
fn a_regular_expression_is_bounded() {
    for template in [
        "{{ regexFind \"((a{100}){100}){100}\" \"a\" }}",
        "{{ regexFind \"((((((((((a{9}){9}){9}){9}){9}){9}){9}){9}){9}){9})\" \"a\" }}",
        "{{ regexFind \"\\\\pL{1000}\" \"a\" }}",
    ] {
        assert_eq!(refused(template), "template", "{template}");
    }
    check_work(&[
        "{{ range until 20000 }}{{ if regexMatch \"[a-z]+\" \"a\" }}{{ end }}{{ end }}",
        "{{ $s := repeat 900000 \"a\" }}{{ regexMatch \"(a*)*(a*)*b\" $s }}",
        "{{ $s := repeat 9000 \"a\" }}{{ regexReplaceAll \"(a+)\" $s (repeat 9000 \"$1\") }}",
    ]);
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
fn a_go_template_cannot_nest_so_deep_that_the_stack_ends() {
    for (open, close) in [
        ("{{ if true }}", "{{ end }}"),
        ("{{ with 1 }}", "{{ end }}"),
        ("{{ range until 1 }}", "{{ end }}"),
        ("{{ if 0 }}{{ else }}", "{{ end }}"),
        ("{{ block \"x\" 1 }}", "{{ end }}"),
    ] {
        refused(&format!("{}{}", open.repeat(20_000), close.repeat(20_000)));
    }
    refused(&format!(
        "{{{{ if 0 }}}}{}{{{{ end }}}}",
        "{{ else if 0 }}".repeat(20_000)
    ));
    refused(&format!(
        "{{{{ with 0 }}}}{}{{{{ end }}}}",
        "{{ else with 0 }}".repeat(20_000)
    ));
    for expression in [
        format!("{}1{}", "(".repeat(20_000), ")".repeat(20_000)),
        format!("1{}", " | toString".repeat(20_000)),
        format!("$x{}", ".a".repeat(20_000)),
        format!("(dict){}", ".a".repeat(20_000)),
        format!("or{}", " 1".repeat(20_000)),
        format!("and{}", " (and 1 2)".repeat(100)),
        format!("list{}", " 1".repeat(20_000)),
    ] {
        let category = refused(&format!("{{{{ $x := 1 }}}}{{{{ {expression} }}}}"));
        assert_eq!(category, "template-syntax", "{}", &expression[..20]);
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

/// Known templates with bytes changed, moved and repeated, the same ones on each run.
#[test]
fn ten_thousand_broken_templates_render_or_are_refused() {
    #[derive(serde::Deserialize)]
    struct Case {
        template: String,
    }
    let golden = include_str!("../../../tests/golden/go-templates.json");
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
