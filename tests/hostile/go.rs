//! Hostile templates in Go's language.

use crate::{Case, case, named};

/// What ends a template that makes or walks too much.
const BOUNDED: &[&str] = &["template-work", "template-fuel", "template-output"];

/// Every case.
pub fn cases() -> Vec<Case> {
    let parts = [
        doubled(),
        texts(),
        lists(),
        maps(),
        endless(),
        expressions(),
        nested(),
        deep_expressions(),
    ];
    parts.into_iter().flatten().collect()
}

/// Functions that make a text of two others, in a loop.
fn doubled() -> Vec<Case> {
    [
        ("print", "print $x $x"),
        ("printf", "printf \"%s%s\" $x $x"),
        ("cat", "cat $x $x"),
        ("join", "join $x (list $x $x $x)"),
        ("replace", "replace \"a\" $x $x"),
        ("repeat", "repeat 2 $x"),
        ("nindent", "nindent 2 (print $x \"\\n\" $x)"),
        ("to_json", "toJson (list $x $x)"),
        ("to_yaml", "toYaml (list $x $x)"),
        ("b64enc", "b64enc $x"),
        ("regex_replace_all", "regexReplaceAll \"a\" $x $x"),
        (
            "regex_replace_all_literal",
            "regexReplaceAllLiteral \"a\" $x $x",
        ),
        ("wrap_with", "wrapWith 1 $x $x"),
        ("quote", "quote $x $x"),
    ]
    .into_iter()
    .map(|(name, expression)| {
        let template = format!(
            "{{{{ $x := \"aaaaaaaa\" }}}}{{{{ range until 1000 }}}}\
             {{{{ $x = {expression} }}}}{{{{ end }}}}"
        );
        case(&format!("doubling_by_{name}"), template, BOUNDED)
    })
    .collect()
}

/// Texts that grow.
fn texts() -> Vec<Case> {
    let mut cases = named(
        BOUNDED,
        &[
            ("repeat_by_a_huge_count", "{{ repeat 100000000 \"a\" }}"),
            ("indent_by_a_huge_width", "{{ indent 100000000 \"a\" }}"),
            ("nindent_by_a_huge_width", "{{ nindent 100000000 \"a\" }}"),
            (
                "printf_by_a_large_width_in_a_loop",
                "{{ range until 1000 }}{{ $x := printf \"%1000000d\" 1 }}{{ end }}",
            ),
            (
                "printf_by_a_large_width_of_a_list",
                "{{ $x := until 400 }}{{ printf \"%1000000d\" $x | len }}",
            ),
            (
                "printf_by_a_given_width_of_a_list",
                "{{ $x := until 400 }}{{ printf \"%*d\" 1000000 $x | len }}",
            ),
            (
                "a_version_in_a_long_list",
                "{{ $v := semver (print \"1.2.3-\" (repeat 900000 \"a\")) }}{{ $l := list }}\
                 {{ range until 200 }}{{ $l = append $l $v }}{{ end }}{{ join \"\" $l | len }}",
            ),
            (
                "many_regular_expressions",
                "{{ range until 5000 }}{{ $x := regexMatch (printf \"(\\\\pL|%d){9}\" .) \"a\" }}{{ end }}",
            ),
            (
                "many_classes_in_a_regular_expression",
                "{{ $p := repeat 60000 \"\\\\pL\" }}{{ range until 50 }}\
                 {{ $x := regexMatch $p \"a\" }}{{ end }}",
            ),
            (
                "searching_with_many_states",
                "{{ $t := repeat 300000 \"a\" }}{{ range until 50 }}\
                 {{ $x := regexMatch \"(a?){200}b\" $t }}{{ end }}",
            ),
            (
                "asking_a_map_for_a_long_key",
                "{{ $k := repeat 900000 \"a\" }}{{ $m := dict }}{{ range until 9000 }}\
                 {{ $x := hasKey $m $k }}{{ end }}",
            ),
            (
                "a_definition_that_doubles",
                "{{ define \"m\" }}{{ . }}{{ . }}{{ end }}{{ range until 2000 }}\
                 {{ template \"m\" (repeat 9000 \"a\") }}{{ end }}",
            ),
            (
                "long_texts_for_nothing",
                "{{ range until 20000 }}{{ repeat 9000 \"raw\" | upper | trunc 1 }}{{ end }}",
            ),
        ],
    );
    let unrolled = "{{ $x = print $x $x }}".repeat(60);
    cases.push(case(
        "doubling_unrolled",
        format!("{{{{ $x := \"aaaaaaaa\" }}}}{unrolled}"),
        BOUNDED,
    ));
    cases.extend(named(
        &["template"],
        &[
            ("printf_by_a_huge_width", "{{ printf \"%100000000d\" 1 }}"),
            (
                "printf_by_a_huge_precision",
                "{{ printf \"%.1000000f\" 1.0 }}",
            ),
        ],
    ));
    cases
}

/// Lists that grow, and walks over them.
fn lists() -> Vec<Case> {
    named(
        BOUNDED,
        &[
            ("until_a_huge_number", "{{ until 100000000 }}"),
            (
                "until_step_to_the_last_number",
                "{{ untilStep 0 9223372036854775807 1 }}",
            ),
            (
                "until_step_over_all_numbers",
                "{{ untilStep -9223372036854775807 9223372036854775807 1 }}",
            ),
            ("seq_to_a_huge_number", "{{ seq 1 100000000 }}"),
            ("range_over_a_huge_number", "{{ range 100000000 }}{{ end }}"),
            (
                "doubling_a_list",
                "{{ $l := list 1 }}{{ range until 1000 }}{{ $l = concat $l $l }}{{ end }}",
            ),
            (
                "a_list_of_long_lists",
                "{{ $l := list }}{{ range until 20000 }}{{ $l = append $l (until 1000) }}{{ end }}",
            ),
            (
                "comparing_each_with_each",
                "{{ $l := until 9000 }}{{ $x := uniq $l }}",
            ),
            (
                "copying_a_list_in_a_loop",
                "{{ $l := until 9000 }}{{ $x := without $l 1 2 3 4 5 6 7 8 9 }}\
                 {{ range until 9999 }}{{ $x = without $l }}{{ end }}",
            ),
            (
                "searching_a_list_in_a_loop",
                "{{ $l := until 90000 }}{{ range until 20000 }}\
                 {{ if has 5000000 $l }}{{ end }}{{ end }}",
            ),
            (
                "splitting_a_long_text_in_a_loop",
                "{{ $s := repeat 1000000 \"a\" }}{{ range until 2000 }}\
                 {{ $x := splitList \"\" $s }}{{ end }}",
            ),
            (
                "a_map_of_many_texts",
                "{{ $d := dict }}{{ range $i := until 90000 }}\
                 {{ $_ := set $d (toString $i) (repeat 200 \"a\") }}{{ end }}",
            ),
            (
                "reading_a_long_document_in_a_loop",
                "{{ $s := repeat 400000 \"[1],\" }}{{ range until 100 }}\
                 {{ $x := fromJsonArray (print \"[\" $s \"1]\") }}{{ end }}",
            ),
        ],
    )
}

/// Maps that would hold themselves, and values inside of values.
fn maps() -> Vec<Case> {
    named(
        &["template"],
        &[
            (
                "a_map_that_holds_itself",
                "{{ $d := dict }}{{ $_ := set $d \"a\" $d }}",
            ),
            (
                "a_map_in_a_list_of_its_own",
                "{{ $d := dict }}{{ $_ := set $d \"a\" (list 1 (list $d)) }}",
            ),
            (
                "two_maps_that_hold_each_other",
                "{{ $d := dict }}{{ $e := dict \"d\" $d }}{{ $_ := set $d \"e\" $e }}",
            ),
            (
                "a_map_merged_into_itself",
                "{{ $d := dict }}{{ $e := dict \"d\" $d }}{{ $_ := merge $d $e (dict \"x\" $e) }}",
            ),
            (
                "maps_inside_maps",
                "{{ $d := dict }}{{ range until 1000 }}{{ $d = dict \"a\" $d }}{{ end }}",
            ),
            (
                "lists_inside_lists",
                "{{ $l := list }}{{ range until 1000 }}{{ $l = list $l }}{{ end }}",
            ),
        ],
    )
}

/// Templates without an end.
fn endless() -> Vec<Case> {
    let mut cases = named(
        BOUNDED,
        &[
            (
                "loops_inside_loops",
                "{{ range until 90000 }}{{ range until 90000 }}{{ end }}{{ end }}",
            ),
            (
                "a_list_inside_itself",
                "{{ $l := until 9000 }}{{ range $l }}{{ range $l }}{{ end }}{{ end }}",
            ),
        ],
    );
    cases.extend(named(
        &["template", "template-fuel"],
        &[
            (
                "a_definition_that_calls_itself",
                "{{ define \"f\" }}{{ template \"f\" . }}{{ end }}{{ template \"f\" }}",
            ),
            (
                "two_definitions_that_call_each_other",
                "{{ define \"f\" }}{{ template \"g\" . }}{{ end }}\
                 {{ define \"g\" }}{{ template \"f\" . }}{{ end }}{{ template \"f\" }}",
            ),
            (
                "a_definition_that_calls_itself_often",
                "{{ define \"f\" }}{{ range until 9 }}{{ template \"f\" . }}{{ end }}{{ end }}\
                 {{ template \"f\" }}",
            ),
        ],
    ));
    cases
}

/// Regular expressions.
fn expressions() -> Vec<Case> {
    let mut cases = named(
        &["template"],
        &[
            (
                "an_expression_of_many_states",
                "{{ regexFind \"((a{100}){100}){100}\" \"a\" }}",
            ),
            (
                "an_expression_of_many_repetitions",
                "{{ regexFind \"((((((((((a{9}){9}){9}){9}){9}){9}){9}){9}){9}){9})\" \"a\" }}",
            ),
            (
                "an_expression_of_many_letters",
                "{{ regexFind \"\\\\pL{1000}\" \"a\" }}",
            ),
        ],
    );
    cases.extend(named(
        BOUNDED,
        &[
            (
                "an_expression_in_a_loop",
                "{{ range until 20000 }}{{ if regexMatch \"[a-z]+\" \"a\" }}{{ end }}{{ end }}",
            ),
            (
                "an_expression_that_tries_again",
                "{{ $s := repeat 900000 \"a\" }}{{ regexMatch \"(a*)*(a*)*b\" $s }}",
            ),
            (
                "a_replacement_that_grows",
                "{{ $s := repeat 9000 \"a\" }}{{ regexReplaceAll \"(a+)\" $s (repeat 9000 \"$1\") }}",
            ),
        ],
    ));
    cases
}

/// Blocks that would use up the stack.
fn nested() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        ("ifs", "{{ if true }}"),
        ("withs", "{{ with 1 }}"),
        ("ranges", "{{ range until 1 }}"),
        ("elses", "{{ if 0 }}{{ else }}"),
        ("blocks", "{{ block \"x\" 1 }}"),
    ]
    .into_iter()
    .map(|(name, open)| {
        let template = format!("{}{}", open.repeat(20_000), "{{ end }}".repeat(20_000));
        case(&format!("deep_{name}"), template, &["template-syntax"])
    })
    .collect();
    for word in ["if", "with"] {
        let links = format!("{{{{ else {word} 0 }}}}").repeat(20_000);
        cases.push(case(
            &format!("a_chain_of_else_{word}"),
            format!("{{{{ {word} 0 }}}}{links}{{{{ end }}}}"),
            &["template-syntax"],
        ));
    }
    cases
}

/// Expressions that would use up the stack.
fn deep_expressions() -> Vec<Case> {
    let chain = |begin: &str, link: &str, end: &str| {
        format!("{}1{}", begin.repeat(20_000), link.repeat(20_000)) + &end.repeat(20_000)
    };
    [
        ("parentheses", chain("(", "", ")")),
        ("pipes", chain("", " | toString", "")),
        ("fields_of_a_variable", format!("$x{}", ".a".repeat(20_000))),
        ("fields_of_a_map", format!("(dict){}", ".a".repeat(20_000))),
        ("ors", format!("or{}", " 1".repeat(20_000))),
        ("ands", format!("and{}", " (and 1 2)".repeat(100))),
        ("arguments", format!("list{}", " 1".repeat(20_000))),
    ]
    .into_iter()
    .map(|(name, expression)| {
        case(
            &format!("many_{name}"),
            format!("{{{{ $x := 1 }}}}{{{{ {expression} }}}}"),
            &["template-syntax"],
        )
    })
    .collect()
}
