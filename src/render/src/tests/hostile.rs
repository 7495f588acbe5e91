//! Templates that try to exceed their limits, in more than one file or by means of Jinja.
//! `tests/hostile` has the others, and measures what they cost.

use super::*;

fn refused(template: &str) -> &'static str {
    a_world().text(template).unwrap_err().category()
}

#[test]
fn a_named_template_cannot_include_itself() {
    let mut world = a_world();
    let templates = &mut world.profile.provisioning_config.templates;
    templates.insert("a".to_owned(), "{% include 'a' %}".to_owned());
    assert_eq!(
        world.text("{% include 'a' %}").unwrap_err().category(),
        "template"
    );
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
fn many_files_share_the_limits_of_one() {
    let many = |template: &str| {
        let mut world = a_world();
        world.limits.work_bytes_max = 4 << 20;
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
    // Together they reach the engine's own limit, which is an error and does not end the process.
    assert_eq!(
        nested(22, 60, 24).unwrap_err().category(),
        "template-syntax"
    );
}
