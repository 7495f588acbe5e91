//! The functions, filters and tests that templates can call.
//!
//! All of them depend only on their arguments. Their errors quote no value, and each charges what
//! it creates to the render. The engine's other functions are omitted: they print every variable at
//! once, pad without a limit, or mark text as safe for HTML.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use minijinja::{
    Environment, Error, State, Value, filters, tests,
    value::{Kwargs, Rest, ValueOrKwargs, from_args},
};

use super::{
    allocation_limit::{
        self, MeteredText, charged, charged_per_entry, charged_with_undefined, refusal,
        refuse_undefined, spend, weigh, weigh_times,
    },
    version::{Constraints, Version},
};

const NO_VERSION: &str = "semver_matches: the version is not a semantic version";
const NO_CONSTRAINT: &str = "semver_matches: the constraint is not a constraint on versions";
const NO_JSON: &str = "the value cannot be written as JSON";
const NO_YAML: &str = "the value cannot be written as YAML";
const FROM_IS_EMPTY: &str = "replace: the text to replace is empty";

const OWN_TEXTS: [&str; 11] = [
    allocation_limit::PRINTS_NONE,
    NO_VERSION,
    NO_CONSTRAINT,
    NO_JSON,
    NO_YAML,
    FROM_IS_EMPTY,
    allocation_limit::TOO_DEEP,
    allocation_limit::NO_NUMBER,
    allocation_limit::NO_SUM,
    allocation_limit::NO_PLAIN,
    allocation_limit::NO_TEXT,
];

/// Returns true if the text of an error is our own, and so quotes no value.
pub(super) fn is_own_text(text: &str) -> bool {
    OWN_TEXTS.contains(&text)
}

/// The cost per byte of a filter that splits a string into a list.
const APART: usize = 32;
/// The cost per byte of a filter that sorts. Sorting half a million entries takes 19 comparisons
/// each.
const SORTS: usize = 20;
/// The cost per byte of JSON: a control character takes six bytes.
const JSON: usize = 6;

/// The engine's default indent.
const INDENT_DEFAULT: usize = 4;

/// Adds all functions, filters and tests.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    allocation_limit::add_to(environment);
    add_functions(environment);
    add_text_filters(environment);
    add_list_filters(environment);
    add_tests(environment);
}

fn add_functions(environment: &mut Environment<'static>) {
    use minijinja::functions::{dict, namespace};
    environment.add_function("range", range);
    environment.add_function("dict", charged(Value::from_function(dict), 1));
    environment.add_function("namespace", charged(Value::from_function(namespace), 1));
    environment.add_function("semver_matches", semver_matches);
    environment.add_filter("semver_matches", semver_matches);
    environment.add_function("b64encode", b64encode);
    environment.add_filter("b64encode", b64encode);
    environment.add_filter("tojson", to_json);
    environment.add_filter("toyaml", to_yaml);
}

fn add_text_filters(environment: &mut Environment<'static>) {
    environment.add_filter("lower", charged(Value::from_function(filters::lower), 1));
    environment.add_filter("upper", charged(Value::from_function(filters::upper), 1));
    environment.add_filter(
        "capitalize",
        charged(Value::from_function(filters::capitalize), 1),
    );
    environment.add_filter("trim", charged(Value::from_function(filters::trim), 2));
    environment.add_filter(
        "split",
        charged(Value::from_function(filters::split), APART),
    );
    environment.add_filter(
        "lines",
        charged(Value::from_function(filters::lines), APART),
    );
    environment.add_filter("string", charged(Value::from_function(filters::string), 1));
    environment.add_filter("int", charged(Value::from_function(filters::int), 1));
    environment.add_filter("float", charged(Value::from_function(filters::float), 1));
    environment.add_filter("bool", charged(Value::from_function(filters::bool), 1));
    environment.add_filter("abs", charged(Value::from_function(filters::abs), 1));
    environment.add_filter("round", charged(Value::from_function(filters::round), 1));
    environment.add_filter("replace", replace);
    environment.add_filter("indent", indent);
}

fn add_list_filters(environment: &mut Environment<'static>) {
    environment.add_filter("length", charged(Value::from_function(filters::length), 1));
    environment.add_filter("count", charged(Value::from_function(filters::length), 1));
    environment.add_filter(
        "default",
        charged_with_undefined(Value::from_function(filters::default), 1),
    );
    environment.add_filter(
        "d",
        charged_with_undefined(Value::from_function(filters::default), 1),
    );
    environment.add_filter("first", charged(Value::from_function(filters::first), 1));
    environment.add_filter("last", charged(Value::from_function(filters::last), 1));
    environment.add_filter("min", charged(Value::from_function(filters::min), 1));
    environment.add_filter("max", charged(Value::from_function(filters::max), 1));
    environment.add_filter("sum", sum);
    environment.add_filter("list", charged(Value::from_function(filters::list), APART));
    environment.add_filter(
        "reverse",
        charged(Value::from_function(filters::reverse), APART),
    );
    environment.add_filter("items", charged(Value::from_function(filters::items), 1));
    environment.add_filter(
        "dictsort",
        charged(Value::from_function(filters::dictsort), SORTS),
    );
    environment.add_filter("sort", charged(Value::from_function(filters::sort), SORTS));
    environment.add_filter(
        "unique",
        charged(Value::from_function(filters::unique), SORTS),
    );
    environment.add_filter("map", charged_per_entry(Value::from_function(filters::map)));
    environment.add_filter(
        "select",
        charged_per_entry(Value::from_function(filters::select)),
    );
    environment.add_filter(
        "reject",
        charged_per_entry(Value::from_function(filters::reject)),
    );
    environment.add_filter(
        "selectattr",
        charged_per_entry(Value::from_function(filters::selectattr)),
    );
    environment.add_filter(
        "rejectattr",
        charged_per_entry(Value::from_function(filters::rejectattr)),
    );
    environment.add_filter("join", join);
}

fn add_tests(environment: &mut Environment<'static>) {
    environment.add_test("defined", tests::is_defined);
    environment.add_test("undefined", tests::is_undefined);
    environment.add_test("none", tests::is_none);
    environment.add_test("true", tests::is_true);
    environment.add_test("false", tests::is_false);
    environment.add_test("boolean", tests::is_boolean);
    environment.add_test("number", tests::is_number);
    environment.add_test("integer", tests::is_integer);
    environment.add_test("float", tests::is_float);
    environment.add_test("string", tests::is_string);
    environment.add_test("sequence", tests::is_sequence);
    environment.add_test("mapping", tests::is_mapping);
    environment.add_test("iterable", walks(Value::from_function(tests::is_iterable)));
    environment.add_test("odd", tests::is_odd);
    environment.add_test("even", tests::is_even);
    environment.add_test("divisibleby", tests::is_divisibleby);
    environment.add_test(
        "startingwith",
        walks(Value::from_function(tests::is_startingwith)),
    );
    environment.add_test(
        "endingwith",
        walks(Value::from_function(tests::is_endingwith)),
    );
}

/// Wraps a test that walks its arguments.
fn walks(
    test: Value,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<bool, Error> + Send + Sync + 'static {
    let test = charged(test, 1);
    move |state, arguments| Ok(test(state, arguments)?.is_true())
}

/// Returns the engine's range as a list. In its lazy range, every entry is found by walking to it.
fn range(lower: isize, upper: Option<isize>, step: Option<isize>) -> Result<Value, Error> {
    let range = minijinja::functions::range(lower, upper, step)?;
    weigh(&range)?;
    Ok(Value::from(range.try_iter()?.collect::<Vec<Value>>()))
}

/// Returns true if a version satisfies a constraint: `semver_matches(KubeVersion, ">=1.34")`.
fn semver_matches(version: &str, constraint: &str) -> Result<bool, Error> {
    spend(version.len() + constraint.len())?;
    let constraints = Constraints::parse(constraint).ok_or_else(|| refusal(NO_CONSTRAINT))?;
    let version = Version::parse(version).ok_or_else(|| refusal(NO_VERSION))?;
    Ok(constraints.is_satisfied_by(&version))
}

/// Encodes a string in standard base64, on one line.
fn b64encode(text: &str) -> Result<String, Error> {
    spend(text.len().saturating_mul(2))?;
    Ok(STANDARD.encode(text))
}

/// Returns a value as compact JSON that is also valid YAML. Characters that YAML refuses are
/// escaped.
fn to_json(value: &Value) -> Result<String, Error> {
    weigh_times([value], JSON)?;
    let json = serde_json::to_string(value).map_err(|_| refusal(NO_JSON))?;
    if !json.contains(is_refused_by_yaml) {
        return Ok(json);
    }
    let mut text = String::with_capacity(json.len() * 2);
    for character in json.chars() {
        if is_refused_by_yaml(character) {
            // All of these characters have code points of at most four hex digits.
            let _ = write!(text, "\\u{:04x}", u32::from(character));
        } else {
            text.push(character);
        }
    }
    Ok(text)
}

/// Returns true if YAML refuses a character, or reads it as a line break.
fn is_refused_by_yaml(character: char) -> bool {
    matches!(
        character,
        '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
    )
}

/// Returns a value as YAML, without the last line break.
fn to_yaml(value: &Value) -> Result<String, Error> {
    weigh_times([value], JSON * 2)?;
    let mut text = serde_saphyr::to_string(value).map_err(|_| refusal(NO_YAML))?;
    text.truncate(text.trim_end_matches('\n').len());
    Ok(text)
}

/// Returns the string with every `from` replaced.
fn replace(text: &str, from: &str, to: &str) -> Result<String, Error> {
    if from.is_empty() {
        return Err(refusal(FROM_IS_EMPTY));
    }
    spend(text.len())?;
    let mut out = MeteredText::default();
    out.push_replaced(text, (from, to))?;
    Ok(out.into_string())
}

/// Calls the engine's filter, after charging the spaces of every line.
fn indent(state: &mut State, arguments: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    type Arguments<'a> = (&'a str, Option<usize>, Option<bool>, Option<bool>, Kwargs);
    let arguments = arguments.into_values();
    let (text, width, _, _, options): Arguments<'_> = from_args(&arguments)?;
    let named: Option<usize> = options.get("width")?;
    let width = width.or(named).unwrap_or(INDENT_DEFAULT);
    let lines = text.matches('\n').count() + 1;
    spend(text.len().saturating_add(lines.saturating_mul(width)))?;
    Value::from_function(filters::indent).call(state, &arguments)
}

/// Calls the engine's filter. A sum that starts with a string or a list is copied at each step.
fn sum(state: &mut State, arguments: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    type Arguments<'a> = (&'a Value, Option<&'a str>, Option<Value>, Kwargs);
    let arguments = arguments.into_values();
    let (items, _, start, options): Arguments<'_> = from_args(&arguments)?;
    let named: Option<Value> = options.get("start")?;
    if start.or(named).is_some_and(|start| !start.is_number()) {
        let weight = weigh_times(&arguments, 1)?;
        spend(items.len().unwrap_or_default().saturating_mul(weight))?;
    }
    let summed = charged_per_entry(Value::from_function(filters::sum));
    Value::from_function(summed).call(state, &arguments)
}

/// Returns the items as they are printed, with the separator between them.
fn join(items: &Value, separator: Option<&str>) -> Result<String, Error> {
    refuse_undefined(Some(items))?;
    let separator = separator.unwrap_or_default();
    let mut out = MeteredText::default();
    for (index, item) in items.try_iter()?.enumerate() {
        // An empty item is charged as well.
        spend(1)?;
        if index > 0 {
            out.push_str(separator)?;
        }
        out.push_str(&allocation_limit::printed(&item)?)?;
    }
    Ok(out.into_string())
}
