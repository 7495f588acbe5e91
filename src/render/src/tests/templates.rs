//! Tests of the template language as profiles use it.

use super::*;
use crate::template::CompiledProfile;

fn check(template: &str, expected: &str) {
    let mut world = a_world();
    let variables = &mut world.settings.variables;
    variables.insert("list".to_owned(), "c,a,b".to_owned());
    assert_eq!(world.text(template).unwrap(), expected, "{template}");
}

#[test]
fn expressions_are_jinjas() {
    check("plain\ntext\n", "plain\ntext\n");
    check("{{ 'a' }}\n", "a\n");
    check("a  {{- 'b' -}}  c", "abc");
    check("{# comment #}x", "x");
    check(
        "{{ true }} {{ 1 == 2 }} {{ 1.5 }} {{ -3 }}",
        "true false 1.5 -3",
    );
    check(
        "{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 7 // 2 }} {{ 7 % 2 }} {{ 2 ** 3 }}",
        "7 9 3 1 8",
    );
    check("{{ 'a' ~ 1 ~ true }}", "a1true");
    check("{{ 'a' + 'b' }}", "ab");
    check(
        "{{ [1, 2] + [3] | list }}{{ '' }}"
            .replace("[1, 2] + [3] | list", "([1, 2] + [3])|join(',')")
            .as_str(),
        "1,2,3",
    );
    check("{{ {'a': 1, 'b': [2]}|tojson }}", r#"{"a":1,"b":[2]}"#);
    check(
        "{{ '\u{7f}\u{85}ä\u{feff}'|tojson }}",
        r#""\u007f\u0085ä\ufeff""#,
    );
    check("{{ {'a': 1, 'b': [2]}|toyaml }}", "a: 1\nb:\n- 2");
    check("{{ 'x' if 1 > 2 else 'y' }}", "y");
    check("{{ 'abc'[1:] }}{{ 'abc'[::-1] }}", "bccba");
    check("{{ variables.list|split(',')|sort|join('-') }}", "a-b-c");
    check("{{ variables.nothing|default('x') }}", "x");
    check(
        "{{ 'a' in 'abc' }} {{ 'z' not in ['a'] }} {{ 1 < 2 < 3 }}",
        "true true true",
    );
    check("{{ not true and false or true }}", "true");
    check("{{ 'quote\"\\n\\\\\u{e4}'|length }}", "9");
    check("{{ '<&>' }}", "<&>");
    check("{{ 'a\nb\n\nc'|indent(2) }}", "a\n  b\n\n  c");
    check("{{ 'aXbX'|replace('X', '-') }}", "a-b-");
    check("{{ 'hello'|b64encode }}", "aGVsbG8=");
    check(
        "{{ [3, 1]|min }}{{ ['a', 'b']|last }}{{ ['a', 'b']|reverse|join }}",
        "1bba",
    );
    check("{{ ['b', 'a']|map('upper')|join }}", "BA");
    check("{{ [{'a': 1, 'k': 2}]|selectattr('a')|list|length }}", "1");
    check("{{ none is none }}", "true");
    check("{{ (1,)|join }}{{ ()|length }}", "10");
}

#[test]
fn statements_and_whitespace_are_jinjas() {
    check("a\n{% if true %}\nb\n{% endif %}\nc\n", "a\n\nb\n\nc\n");
    check("a\n{%- if true %}\nb\n{%- endif %}\nc\n", "a\nb\nc\n");
    check("{% raw %}{{ x }}{% endraw %}", "{{ x }}");
    check(
        "{% for i in range(3) %}{{ loop.index }}{% if not loop.last %},{% endif %}{% endfor %}",
        "1,2,3",
    );
    check("{% for i in [] %}a{% else %}b{% endfor %}", "b");
    check(
        "{% for i in range(9) if i is odd %}{% if i > 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
        "135",
    );
    check(
        "{% for k, v in {'a': 1, 'b': 2}|items %}{{ k }}{{ v }}{% endfor %}",
        "a1b2",
    );
    check(
        "{% set x = 1 %}{% set (a, b) = (2, 3) %}{{ x }}{{ a }}{{ b }}",
        "123",
    );
    check(
        "{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
        "6",
    );
    check("{% set x %}a{{ 'b' }}{% endset %}{{ x|upper }}", "AB");
    check("{% set x | upper | trim %} a {% endset %}{{ x }}", "A");
    check("{% filter upper %}a{{ 'b' }}{% endfilter %}", "AB");
    check("{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}", "3");
    check(
        "{% macro m(a, b='d') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}",
        "[1d][12]",
    );
    check(
        "{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}",
        "<1>",
    );
    check("{% if variables.nothing is defined %}a{% endif %}", "");
    check(
        "{% if semver_matches(KubeVersion, '>=1.34') and KubeVersion|semver_matches('<2') %}y{% endif %}",
        "y",
    );
    check("{% do range(3) %}x", "x");
}

#[test]
fn named_templates_are_included_and_imported() {
    let mut world = a_world();
    let config = &mut world.profile.provisioning_config;
    for (name, text) in [
        ("greeting", "hello {{ who }} {{ KubeVersion }}\n"),
        (
            "macros",
            "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{% set answer = 42 %}",
        ),
        ("nested", "[{% include 'greeting' %}]"),
    ] {
        config.templates.insert(name.to_owned(), text.to_owned());
    }
    let check = |template: &str, expected: &str| {
        assert_eq!(world.text(template).unwrap(), expected, "{template}");
    };
    check(
        "{% set who = 'you' %}{% include 'greeting' %}",
        "hello you v1.34.1\n",
    );
    check(
        "{% set who = 'you' %}{% include 'nested' %}",
        "[hello you v1.34.1\n]",
    );
    check("{% from 'macros' import twice %}{{ twice('a') }}", "aa");
    check(
        "{% from 'macros' import twice as t, answer %}{{ t(answer) }}",
        "4242",
    );
    check(
        "{% import 'macros' as m %}{{ m.twice('a') }}{{ m.answer }}",
        "aa42",
    );
    check("{% include 'nothing' ignore missing %}x", "x");
    check("{% include ['nothing', 'macros'] %}x", "x");
}

#[test]
fn a_halfs_template_wins_over_containerds() {
    let mut world = a_world();
    let config = &mut world.profile.provisioning_config;
    let mut runtime = a_runtime(Vec::new());
    runtime
        .templates
        .insert("a".to_owned(), "runtime".to_owned());
    runtime
        .templates
        .insert("b".to_owned(), "runtime".to_owned());
    config.supported_container_runtimes = vec![runtime];
    config.templates.insert("a".to_owned(), "own".to_owned());
    assert_eq!(
        world.text("{% include 'a' %} {% include 'b' %}").unwrap(),
        "own runtime"
    );
}

#[test]
fn a_profile_says_whether_it_reads_the_bootstrap_kubeconfig() {
    let reads = |template: &str, named: &str| {
        let mut profile = a_profile();
        profile.bootstrap_config.files = vec![a_file("/f", template)];
        let templates = &mut profile.bootstrap_config.templates;
        templates.insert("named".to_owned(), named.to_owned());
        CompiledProfile::compile(&profile)
            .unwrap()
            .reads_bootstrap_kubeconfig()
    };
    assert!(reads("{{ BootstrapKubeconfig }}", ""));
    assert!(reads(
        "{% if false %}{{ BootstrapKubeconfig|trim }}{% endif %}",
        ""
    ));
    assert!(reads("{% include 'named' %}", "{{ BootstrapKubeconfig }}"));
    assert!(!reads(
        "BootstrapKubeconfig {{ BootstrapKubeconfigSecretName }}",
        ""
    ));
}

#[test]
fn equal_profiles_have_equal_digests() {
    let digest = |profile| {
        CompiledProfile::compile(&profile)
            .unwrap()
            .digest()
            .to_owned()
    };
    let mut other = a_profile();
    assert_eq!(digest(a_profile()), digest(other.clone()));
    assert_eq!(digest(a_profile()).len(), 64);
    "v1.0.1".clone_into(&mut other.version);
    assert_ne!(digest(a_profile()), digest(other));
}
