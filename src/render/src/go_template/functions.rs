//! The functions of Go templates, of sprig, and of the program that profiles were written for.
//!
//! Each depends only on its arguments. What it scans and creates is charged to the render, most of
//! it here: a function's `factor` says how often it walks its arguments. A function with the factor
//! 0 reads at most one entry, or charges by itself. Functions that read a clock, a network, an
//! environment or randomness, or that create keys, are known and refused.

use minijinja::{Environment, Error, Value, value::Rest};

use super::{
    super::allocation_limit::{spend, weigh, weigh_times},
    problem::{quotes_no_value, refuse},
    value::{Kind, kind, pointee, typed},
};

mod builtin;
mod casing;
mod compare;
mod decimals;
mod dicts;
mod documents;
mod encodings;
mod lists;
mod numbers;
mod paths;
mod patterns;
mod printf;
mod reflection;
mod structure;
mod texts;
mod urls;

use reflection::is_empty;
pub(super) use structure::{VERSION_METHODS, field, items, no_field, pairs};

/// A function.
#[derive(Clone, Copy)]
pub(super) struct Function {
    name: &'static str,
    /// The minimum and the maximum number of arguments.
    arguments: (usize, usize),
    /// How often it walks its arguments.
    factor: usize,
    run: Run,
}

/// The implementation of a function.
type Run = fn(&[Value]) -> Result<Value, Error>;

const fn function(
    name: &'static str,
    arguments: (usize, usize),
    factor: usize,
    run: Run,
) -> Function {
    Function {
        name,
        arguments,
        factor,
        run,
    }
}

/// Any number of arguments.
const ANY: usize = usize::MAX;
/// The cost of a call by itself.
const CALL_BYTES: usize = 8;

const TABLES: [&[Function]; 15] = [
    builtin::TABLE,
    casing::TABLE,
    compare::TABLE,
    decimals::TABLE,
    dicts::TABLE,
    documents::TABLE,
    encodings::TABLE,
    lists::TABLE,
    numbers::TABLE,
    paths::TABLE,
    patterns::TABLE,
    printf::TABLE,
    reflection::TABLE,
    texts::TABLE,
    urls::TABLE,
];

/// Functions that the engine has built in.
const OPERATORS: [&str; 3] = ["and", "or", "not"];

/// Functions whose result depends on more than their arguments, or that create keys.
const REFUSED: [&str; 38] = [
    "ago",
    "bcrypt",
    "buildCustomCert",
    "date",
    "dateInZone",
    "dateModify",
    "date_in_zone",
    "date_modify",
    "decryptAES",
    "derivePassword",
    "encryptAES",
    "env",
    "expandenv",
    "genCA",
    "genCAWithKey",
    "genPrivateKey",
    "genSelfSignedCert",
    "genSelfSignedCertWithKey",
    "genSignedCert",
    "genSignedCertWithKey",
    "getHostByName",
    "htmlDate",
    "htmlDateInZone",
    "htpasswd",
    "mustDateModify",
    "mustToDate",
    "must_date_modify",
    "now",
    "randAlpha",
    "randAlphaNum",
    "randAscii",
    "randBytes",
    "randInt",
    "randNumeric",
    "shuffle",
    "toDate",
    "unixEpoch",
    "uuidv4",
];

/// The result of looking up a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Yes,
    Refused,
    No,
}

/// Looks up the name of a function.
pub(super) fn known(name: &str) -> Known {
    let mut functions = all();
    if OPERATORS.contains(&name) || functions.any(|function| function.name == name) {
        Known::Yes
    } else if REFUSED.contains(&name) {
        Known::Refused
    } else {
        Known::No
    }
}

/// Adds everything that translated templates call.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    for function in all() {
        let name = format!("go_{}", function.name);
        environment.add_function(name, move |arguments: Rest<Value>| {
            function.call(&arguments)
        });
    }
    structure::add_to(environment);
}

/// Returns every function.
pub(super) fn all() -> impl Iterator<Item = &'static Function> {
    TABLES.iter().copied().flatten()
}

impl Function {
    pub(super) const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn call(&self, arguments: &[Value]) -> Result<Value, Error> {
        run(self, arguments).map_err(|error| {
            if quotes_no_value(&error) {
                let detail = error.detail().unwrap_or_default();
                refuse(format!("{}: {detail}", self.name))
            } else {
                error
            }
        })
    }
}

fn run(function: &Function, arguments: &[Value]) -> Result<Value, Error> {
    let (min, max) = function.arguments;
    let count = arguments.len();
    if count < min || count > max {
        return Err(refuse(format!("wrong number of args: {count}")));
    }
    spend(CALL_BYTES)?;
    if function.factor > 0 {
        weigh_times(arguments, function.factor)?;
    }
    let made = (function.run)(arguments)?;
    if function.factor > 0 {
        weigh(&made)?;
    }
    Ok(made)
}

fn wrong_type(wanted: &str, found: &Value) -> Error {
    refuse(format!(
        "wrong type for value; expected {wanted}; got {}",
        kind(found).name()
    ))
}

/// Returns an argument that must be a string. It is copied, and charged.
fn text(value: &Value) -> Result<String, Error> {
    let value = pointee(value);
    let text = value.as_str().ok_or_else(|| wrong_type("string", &value))?;
    spend(text.len())?;
    Ok(text.to_owned())
}

/// Returns an argument that must be an integer.
fn int(value: &Value) -> Result<i64, Error> {
    let value = pointee(value);
    match kind(&value) {
        Kind::Int(number) if typed(&value).is_none() => Ok(number),
        _ => Err(wrong_type("int", &value)),
    }
}

/// Returns an argument that must be a count, an integer that is not negative.
fn count(value: &Value) -> Result<usize, Error> {
    usize::try_from(int(value)?).map_err(|_| refuse("a negative count"))
}

/// Returns an argument that must be a Boolean.
fn boolean(value: &Value) -> Result<bool, Error> {
    match kind(&pointee(value)) {
        Kind::Bool(value) => Ok(value),
        _ => Err(wrong_type("bool", value)),
    }
}

fn missing() -> Error {
    refuse("wrong number of args")
}
