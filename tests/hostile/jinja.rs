//! Hostile templates in Jinja.

use crate::{Case, case, named};

/// Every case.
pub fn cases() -> Vec<Case> {
    let parts = [
        texts(),
        products(),
        lists(),
        walks(),
        values(),
        endless(),
        nested(),
        chained(),
    ];
    parts.into_iter().flatten().collect()
}

/// Texts that grow.
fn texts() -> Vec<Case> {
    let mut cases = named(
        &["template-work"],
        &[
            (
                "doubling_through_a_namespace",
                "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(1000) %}\
                 {% set ns.a = ns.a ~ ns.a %}{% endfor %}",
            ),
            (
                "doubling_by_a_sum",
                "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(1000) %}\
                 {% set ns.a = ns.a + ns.a %}{% endfor %}",
            ),
            (
                "doubling_by_a_macro",
                "{% macro m(n) %}{{ n }}{{ n }}{% endmacro %}{% set ns = namespace(a='aaaaaaaa') %}\
                 {% for i in range(1000) %}{% set ns.a = m(ns.a) %}{% endfor %}",
            ),
            (
                "doubling_by_a_block",
                "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(1000) %}\
                 {% set x %}{{ ns.a }}{{ ns.a }}{% endset %}{% set ns.a = x %}{% endfor %}",
            ),
            (
                "doubling_by_replace",
                "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(1000) %}\
                 {% set ns.a = ns.a|replace('a', ns.a) %}{% endfor %}",
            ),
            (
                "doubling_by_join",
                "{% set ns = namespace(a='aaaaaaaa') %}{% for i in range(1000) %}\
                 {% set ns.a = [ns.a, ns.a]|join %}{% endfor %}",
            ),
            (
                "doubling_by_nested_macros",
                "{% macro a(n) %}{{ n }}{{ n }}{% endmacro %}{% macro b(n) %}{{ a(a(n)) }}\
                 {% endmacro %}{% macro c(n) %}{{ b(b(b(n))) }}{% endmacro %}{% set x = \
                 c(c(c(c('aaaaaaaa')))) %}",
            ),
            (
                "indent_by_a_huge_width",
                "{{ 'a'|indent(100000000, true) }}",
            ),
            (
                "indent_by_a_huge_named_width",
                "{{ 'a'|indent(width=100000000, first=true) }}",
            ),
        ],
    );
    let unrolled = "{% set x = x ~ x %}".repeat(60);
    cases.extend([
        case(
            "doubling_unrolled",
            format!("{{% set x = 'aaaaaaaa' %}}{unrolled}"),
            &["template-work"],
        ),
        case(
            "raw_text_in_a_loop",
            format!(
                "{{% set x %}}{{% for i in range(10000) %}}{}{{% endfor %}}{{% endset %}}",
                "raw text".repeat(1000)
            ),
            &["template-work"],
        ),
    ]);
    cases
}

/// What Python's Jinja does with `*` and `%`.
fn products() -> Vec<Case> {
    named(
        &["template"],
        &[
            ("a_text_times_a_number", "{{ 'a' * 100000000 }}"),
            ("a_text_modulo_a_text", "{{ '%s' % 'a' }}"),
        ],
    )
}

/// Lists that grow, and walks over them.
fn lists() -> Vec<Case> {
    named(
        &["template-work"],
        &[
            (
                "doubling_a_list",
                "{% set ns = namespace(a=[1]) %}{% for i in range(1000) %}\
                 {% set ns.a = ns.a + ns.a %}{% endfor %}",
            ),
            (
                "a_list_of_long_lists",
                "{% set ns = namespace(a=[]) %}{% for i in range(20000) %}\
                 {% set ns.a = ns.a + [range(90000)|list] %}{% endfor %}",
            ),
            (
                "range_as_a_list",
                "{% for i in range(1000) %}{% set x = range(90000)|list %}{% endfor %}",
            ),
            (
                "walking_a_long_text",
                "{% set s = 'a'|indent(4000000, true) %}{% for i in range(20000) %}\
                 {% for c in s %}{% break %}{% endfor %}{% endfor %}",
            ),
            (
                "testing_a_long_text",
                "{% set s = 'a'|indent(4000000, true) %}{% for i in range(20000) %}\
                 {% if s is startingwith(s) %}{% endif %}{% endfor %}",
            ),
            (
                "hashing_a_long_key",
                "{% set s = 'a'|indent(4000000, true) %}{% set m = {s: 1} %}\
                 {% for i in range(20000) %}{% set x = m[s] %}{% endfor %}",
            ),
            (
                "walking_to_an_index",
                "{% set l = range(90000)[:] %}{% for i in range(20000) %}\
                 {% set x = l[80000] %}{% endfor %}",
            ),
            (
                "calling_for_nothing",
                "{% macro m() %}{{ 'a'|indent(8000, true) }}{% endmacro %}\
                 {% for i in range(20000) %}{% do m() %}{% endfor %}",
            ),
            (
                "searching_a_range",
                "{% for i in range(20000) %}{% if 5 in range(99999) %}{% endif %}{% endfor %}",
            ),
            (
                "comparing_long_lists",
                "{% for i in range(20000) %}{% if range(99999)|list == range(99999)|list %}\
                 {% endif %}{% endfor %}",
            ),
        ],
    )
}

/// Walks to a place in a long text or list, again and again.
fn walks() -> Vec<Case> {
    named(
        &["template-work"],
        &[
            (
                "indexing_a_long_text",
                "{% set s = 'a'|indent(950000, true) %}{% for i in range(16000) %}\
                 {% set x = s[i] %}{% endfor %}",
            ),
            (
                "indexing_a_long_text_from_its_end",
                "{% set s = 'a'|indent(950000, true) %}{% for i in range(16000) %}\
                 {% set x = s[-1] %}{% endfor %}",
            ),
            (
                "slicing_a_long_text",
                "{% set s = 'a'|indent(950000, true) %}{% for i in range(16000) %}\
                 {% set x = s[940000:940001] %}{% endfor %}",
            ),
            (
                "slicing_a_long_list",
                "{% set l = range(90000) %}{% for i in range(16000) %}\
                 {% set x = l[80000:80001] %}{% endfor %}",
            ),
            (
                "printf_by_a_large_width_of_a_list",
                "{% set x = go_until(400) %}{{ go_printf('%1000000d', x)|length }}",
            ),
        ],
    )
}

/// Values inside of values, and values that would hold themselves.
fn values() -> Vec<Case> {
    named(
        &["template"],
        &[
            (
                "lists_inside_lists",
                "{% set ns = namespace(a=[]) %}{% for i in range(20000) %}\
                 {% set ns.a = [ns.a] %}{% endfor %}",
            ),
            (
                "a_namespace_that_holds_itself",
                "{% set ns = namespace() %}{% set ns.a = ns %}",
            ),
            (
                "a_namespace_in_a_list_of_its_own",
                "{% set ns = namespace() %}{% set ns.a = [ns] %}",
            ),
            (
                "a_namespace_in_a_map_of_its_own",
                "{% set ns = namespace() %}{% set ns.a = {'x': ns} %}",
            ),
        ],
    )
}

/// Templates without an end.
fn endless() -> Vec<Case> {
    let mut cases = named(
        &["template-fuel"],
        &[(
            "loops_inside_loops",
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        )],
    );
    cases.extend(named(
        &["template", "template-syntax"],
        &[
            (
                "a_macro_that_calls_itself",
                "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            ),
            (
                "a_loop_that_calls_itself",
                "{% for i in [[1]] recursive %}{{ loop(i) }}{% endfor %}",
            ),
            (
                "a_range_without_end",
                "{% for i in range(999999999) %}{% endfor %}",
            ),
        ],
    ));
    cases.push(case(
        "an_output_without_end",
        format!(
            "{{% for i in range(20000) %}}{}{{% endfor %}}",
            "0123456789".repeat(7)
        ),
        &["template-output"],
    ));
    cases
}

/// Brackets and blocks that would use up the stack.
fn nested() -> Vec<Case> {
    [
        ("parentheses", "{{ ", "(", "1", ")", " }}"),
        ("brackets", "{{ ", "[", "1", "]", " }}"),
        ("minus_signs", "{{ ", "-", "1", "", " }}"),
        ("ifs", "", "{% if true %}", "", "{% endif %}", ""),
        ("loops", "", "{% for i in [1] %}", "", "{% endfor %}", ""),
        ("set_blocks", "", "{% set x %}", "", "{% endset %}", ""),
        ("calls", "", "{% call m() %}", "", "{% endcall %}", ""),
        (
            "loops_with_else",
            "",
            "{% for i in [1] %}{% else %}",
            "",
            "{% endfor %}",
            "",
        ),
    ]
    .into_iter()
    .map(|(name, begin, open, inner, close, end)| {
        let (open, close) = (open.repeat(20_000), close.repeat(20_000));
        case(
            &format!("deep_{name}"),
            format!("{begin}{open}{inner}{close}{end}"),
            &["template-syntax"],
        )
    })
    .collect()
}

/// Long chains, which a recursive parser or compiler walks down.
fn chained() -> Vec<Case> {
    [
        ("filters", "|upper"),
        ("attributes", ".a"),
        ("indexes", "[0]"),
        ("calls", "()"),
        ("concatenations", " ~ 1"),
        ("sums", " + 1"),
        ("ands", " and 1"),
        ("tests", " is defined"),
    ]
    .into_iter()
    .map(|(name, link)| {
        case(
            &format!("a_chain_of_{name}"),
            format!("{{{{ Token{} }}}}", link.repeat(20_000)),
            &["template-syntax"],
        )
    })
    .collect()
}
