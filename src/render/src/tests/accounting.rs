//! Compares what every function, filter and test allocates with what it charges. The list comes
//! from the engine, so a new function without accounting fails here.

use std::collections::BTreeSet;

use minijinja::{Environment, UndefinedBehavior, Value};

use super::super::{allocation_limit, engine, go_template, sandbox};

mod arguments;

use arguments::{Arguments, LEVELS, tuples};

/// The number of bytes that a call may allocate for each byte that it charges, including those that
/// it frees again. A string that grows by doubling takes four.
const ALLOCATED_PER_CHARGED: u64 = 8;
/// The number of bytes that any call may allocate: for a list of arguments, a parser or an error.
const CALL_BYTES: u64 = 8 << 10;
/// The number of bytes that a render may charge.
const WORK_BYTES: usize = 2 << 20;

/// The functions that refuse every call, because they stand for something impossible.
const ALWAYS_REFUSED: [&str; 4] = [
    "function go_call",
    "function go_fail",
    "function go_no_field",
    "function go_no_template",
];

/// Jinja's operators, and other syntax that creates values.
const JINJA_SYNTAX: [&str; 40] = [
    "a ~ b",
    "a + b",
    "a - b",
    "a * b",
    "a / b",
    "a // b",
    "a % b",
    "a ** b",
    "a and b",
    "a or b",
    "a == b",
    "a != b",
    "a < b",
    "a <= b",
    "a > b",
    "a >= b",
    "a in b",
    "a not in b",
    "a < b < c",
    "not a",
    "-a",
    "a if b else c",
    "a.b",
    "a[b]",
    "a[0]",
    "a[-1]",
    "a[b:c]",
    "a[:b]",
    "a[b:]",
    "a[::b]",
    "a[0:1]",
    "a[0:0:-1]",
    "[a, b, c]",
    "(a, b)",
    "{'k': a, b: c}",
    "a is string",
    "a|default(b)",
    "dict(k=a)",
    "namespace(k=a)",
    "a|sum(start=b)",
];

/// Something that a template can call.
enum Callable {
    Function(Value),
    Filter,
    Test,
    Template,
}

/// An entry that is registered, by its kind and name.
struct Entry {
    name: String,
    callable: Callable,
}

impl Entry {
    fn new(kind: &str, name: &str, callable: Callable) -> Self {
        Self {
            name: format!("{kind} {name}"),
            callable,
        }
    }

    /// Returns the name by which a template calls it.
    fn key(&self) -> &str {
        self.name
            .split_once(' ')
            .expect("a kind stands before it")
            .1
    }
}

/// Returns everything that an environment has registered.
fn registered(environment: &Environment<'_>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = environment
        .globals()
        .map(|(name, function)| Entry::new("function", name, Callable::Function(function)))
        .collect();
    // The engine shows the names of filters and tests only in its debug output.
    let debug = format!("{environment:?}");
    let names = |list: &str| {
        let names = debug
            .split_once(list)
            .expect("the engine has such a list")
            .1;
        let names = names.split(']').next().expect("a split has a first part");
        let names = names.split('"').skip(1).step_by(2);
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    entries.extend(
        names("filters: [")
            .iter()
            .map(|name| Entry::new("filter", name, Callable::Filter)),
    );
    entries.extend(
        names("tests: [")
            .iter()
            .map(|name| Entry::new("test", name, Callable::Test)),
    );
    entries
}

/// The cost of a call.
struct Cost {
    allocated: u64,
    charged: u64,
    is_ok: bool,
}

impl Cost {
    fn is_accounted_for(&self) -> bool {
        self.allocated <= self.charged * ALLOCATED_PER_CHARGED + CALL_BYTES
    }
}

fn cost(environment: &Environment<'_>, entry: &Entry, arguments: &[Value]) -> Cost {
    allocation_limit::start(WORK_BYTES, go_template::printed_parts);
    let mut state = environment.empty_state();
    let mut is_ok = false;
    let mut call = || {
        is_ok = match &entry.callable {
            Callable::Function(function) => function.call(&mut state, arguments).is_ok(),
            Callable::Filter => state.apply_filter(entry.key(), arguments).is_ok(),
            Callable::Test => state.perform_test(entry.key(), arguments).is_ok(),
            Callable::Template => {
                let names = ["a", "b", "c"].into_iter();
                let variables = Value::from_pairs(names.zip(arguments.iter().cloned()));
                let template = environment.get_template(entry.key());
                let rendered = template.and_then(|template| template.render(variables));
                rendered.is_ok()
            }
        };
    };
    let counted = allocation_counter::measure(&mut call);
    Cost {
        allocated: counted.bytes_total,
        charged: u64::try_from(WORK_BYTES - allocation_limit::left()).expect("it is small"),
        is_ok,
    }
}

/// Calls everything with small arguments, and what accepted them with large ones.
fn check(environment: &Environment<'_>, entries: &[Entry]) {
    let arguments = Arguments::new(environment);
    let tuples = tuples();
    let mut wrong = Vec::new();
    let mut surprising = BTreeSet::new();
    for entry in entries {
        let mut is_tried = false;
        for tuple in &tuples {
            if !cost(environment, entry, &arguments.of(tuple, 0)).is_ok {
                continue;
            }
            for level in (1..LEVELS).rev() {
                let cost = cost(environment, entry, &arguments.of(tuple, level));
                if !cost.is_accounted_for() {
                    wrong.push(format!(
                        "{} {tuple:?}: allocates {} bytes and charges {}",
                        entry.name, cost.allocated, cost.charged
                    ));
                }
                is_tried |= cost.is_ok;
                if cost.is_ok {
                    break;
                }
            }
        }
        if is_tried == ALWAYS_REFUSED.contains(&entry.name.as_str()) {
            surprising.insert(entry.name.as_str());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        surprising.is_empty(),
        "no call of these succeeds, or one of `ALWAYS_REFUSED` does: {surprising:?}"
    );
}

#[test]
fn everything_in_jinja_charges_what_it_allocates() {
    let mut environment = engine::environment();
    let mut entries = registered(&environment);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    for source in JINJA_SYNTAX {
        let template = sandbox::rewrite(&format!("{{% set x = {source} %}}"), 0);
        let template = template.expect("the syntax is known");
        environment
            .add_template_owned(source, template)
            .expect("what is printed is read");
        entries.push(Entry::new("template", source, Callable::Template));
    }
    check(&environment, &entries);
}

#[test]
fn everything_in_go_charges_what_it_allocates() {
    let environment = go_template::environment();
    check(&environment, &registered(&environment));
}

#[test]
fn everything_that_converted_templates_call_charges_what_it_allocates() {
    let known: BTreeSet<String> = registered(&engine::environment())
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    let mut environment = engine::environment();
    go_template::offer(&mut environment);
    let mut entries = registered(&environment);
    entries.retain(|entry| !known.contains(&entry.name));
    check(&environment, &entries);
}
