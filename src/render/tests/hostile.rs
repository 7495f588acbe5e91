//! Templates that want more than their share.

use super::*;

fn refused(template: &str) -> String {
    let error = a_world().text(template).unwrap_err();
    assert!(
        matches!(
            error.category(),
            "template-fuel" | "template-output" | "template-work" | "template" | "template-syntax"
        ),
        "{template}: {error}"
    );
    error.category().to_owned()
}

#[test]
fn a_text_cannot_grow_without_bound() {
    for template in [
        "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(1000) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
        "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(1000) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
        "{% macro m(n) %}{{ n }}{{ n }}{% endmacro %}{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(1000) %}{% set ns.a = m(ns.a) %}{% endfor %}",
        "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(1000) %}{% set x %}{{ ns.a }}{{ ns.a }}{% endset %}{% set ns.a = x %}{% endfor %}",
        "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(1000) %}{% set ns.a = ns.a|replace('a', ns.a) %}{% endfor %}",
        "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(1000) %}{% set ns.a = [ns.a, ns.a]|join %}{% endfor %}",
        &format!(
            "{{% set x %}}{{% for i in range(10000) %}}{}{{% endfor %}}{{% endset %}}",
            "raw text".repeat(1000)
        ),
        "{{ 'a'|indent(100000000, true) }}",
        "{{ 'a'|indent(width=100000000, first=true) }}",
    ] {
        assert_eq!(refused(template), "template-work", "{template}");
    }
    assert_eq!(refused("{{ 'a' * 100000000 }}"), "template");
    assert_eq!(refused("{{ '%s' % 'a' }}"), "template");
}

#[test]
fn a_list_cannot_grow_without_bound() {
    for template in [
        "{% set ns = namespace(a=[1]) %}{% for i in range(1000) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
        "{% set ns = namespace(a=[]) %}{% for i in range(20000) %}{% set ns.a = ns.a + [range(90000)|list] %}{% endfor %}",
        "{% for i in range(1000) %}{% set x = range(90000)|list %}{% endfor %}",
        "{% set s = 'a'|indent(4000000, true) %}{% for i in range(20000) %}{% for c in s %}{% break %}{% endfor %}{% endfor %}",
        "{% set s = 'a'|indent(4000000, true) %}{% for i in range(20000) %}{% if s is startingwith(s) %}{% endif %}{% endfor %}",
        "{% set s = 'a'|indent(4000000, true) %}{% set m = {s: 1} %}{% for i in range(20000) %}{% set x = m[s] %}{% endfor %}",
        "{% set l = range(90000)[:] %}{% for i in range(20000) %}{% set x = l[80000] %}{% endfor %}",
        "{% macro m() %}{{ 'a'|indent(8000, true) }}{% endmacro %}{% for i in range(20000) %}{% do m() %}{% endfor %}",
        "{% for i in range(20000) %}{% if 5 in range(99999) %}{% endif %}{% endfor %}",
        "{% for i in range(20000) %}{% if range(99999)|list == range(99999)|list %}{% endif %}{% endfor %}",
    ] {
        assert_eq!(refused(template), "template-work", "{template}");
    }
}

#[test]
fn values_cannot_nest_deep_or_hold_themselves() {
    for template in [
        "{% set ns = namespace(a=[]) %}{% for i in range(20000) %}{% set ns.a = [ns.a] %}{% endfor %}",
        "{% set ns = namespace() %}{% set ns.a = ns %}",
        "{% set ns = namespace() %}{% set ns.a = [ns] %}",
        "{% set ns = namespace() %}{% set ns.a = {'x': ns} %}",
    ] {
        assert_eq!(refused(template), "template", "{template}");
    }
}

#[test]
fn a_template_cannot_run_for_ever() {
    for template in [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for i in [[1]] recursive %}{{ loop(i) }}{% endfor %}",
        "{% for i in range(999999999) %}{% endfor %}",
    ] {
        refused(template);
    }
    let mut world = a_world();
    let templates = &mut world.profile.provisioning_config.templates;
    templates.insert("a".to_owned(), "{% include 'a' %}".to_owned());
    assert_eq!(
        world.text("{% include 'a' %}").unwrap_err().category(),
        "template"
    );
}

#[test]
fn a_template_cannot_nest_so_deep_that_the_stack_ends() {
    for (open, close) in [("(", ")"), ("[", "]"), ("-", "")] {
        let template = format!("{{{{ {}1{} }}}}", open.repeat(20_000), close.repeat(20_000));
        refused(&template);
    }
    for (open, close) in [
        ("{% if true %}", "{% endif %}"),
        ("{% for i in [1] %}", "{% endfor %}"),
        ("{% set x %}", "{% endset %}"),
        ("{% call m() %}", "{% endcall %}"),
        ("{% for i in [1] %}{% else %}", "{% endfor %}"),
    ] {
        refused(&format!("{}{}", open.repeat(20_000), close.repeat(20_000)));
    }
    for chain in [
        "|upper",
        ".a",
        "[0]",
        "()",
        " ~ 1",
        " + 1",
        " and 1",
        " is defined",
    ] {
        let template = format!("{{{{ Token{} }}}}", chain.repeat(20_000));
        refused(&template);
    }
}

#[test]
fn the_counting_functions_cannot_be_replaced() {
    for template in [
        "{% set osm_made = 1 %}",
        "{% macro osm_concat(a, b) %}{% endmacro %}",
        "{% for osm_made in [1] %}{% endfor %}",
        "{% with osm_made = 1 %}{% endwith %}",
        "{% macro m(osm_made) %}{% endmacro %}",
        "\u{1}= Token =\u{1}{{ 1 }}",
        "{% autoescape true %}{% endautoescape %}",
        "{% block a %}{% endblock %}",
        "{% extends 'a' %}",
    ] {
        assert_eq!(refused(template), "template-syntax", "{template}");
    }
}

#[test]
fn output_beyond_its_limit_fails_early() {
    let template = "{% for i in range(20000) %}0123456789012345678901234567890123456789012345678901234567890123456789{% endfor %}";
    assert_eq!(refused(template), "template-output");
}

#[test]
fn many_files_share_the_limits_of_one() {
    let many = |template: &str| {
        let mut world = a_world();
        let file = |index| a_file(&format!("/{index}"), template);
        world.profile.provisioning_config.files = (0..100).map(file).collect();
        world.render().unwrap_err().category()
    };
    let slow = "{% for i in range(900) %}{% endfor %}{{ 1 }}";
    assert_eq!(many(slow), "template-fuel");
    let large = "{% set x = 'a'|indent(1000000, true) %}";
    assert_eq!(many(large), "template-work");
}

#[test]
fn what_the_counts_allow_fits_on_a_small_stack() {
    let nested = |blocks: usize, alternatives: usize, brackets: usize| {
        let (open, close) = ("(".repeat(brackets), ")".repeat(brackets));
        let chain = " ~ 1".repeat(70);
        let alternatives = "{% elif false %}".repeat(alternatives);
        let inner = format!("{{{{ {open}1{close}{chain} }}}}");
        let inner = format!("{{% if false %}}{alternatives}{{% else %}}{inner}{{% endif %}}");
        let (open, close) = ("{% if true %}".repeat(blocks), "{% endif %}".repeat(blocks));
        let (sets, ends) = ("{% set x %}".repeat(40), "{% endset %}".repeat(40));
        a_world().text(&format!("{open}{inner}{sets}{ends}{close}"))
    };
    assert_eq!(nested(10, 20, 10).unwrap(), "1".repeat(71));
    assert_eq!(nested(0, 60, 0).unwrap(), "1".repeat(71));
    // Together they meet the engine's own limit, which is an error and not the end.
    assert_eq!(
        nested(22, 60, 24).unwrap_err().category(),
        "template-syntax"
    );
}
