//! Limits the bytes that a profile's templates may allocate in one render.
//!
//! Every value that a template creates is charged with its weight: the size of the tree that it
//! prints as. Nothing is credited back. That limits memory and also time, since each scan is
//! charged for what it scans. The limit is exact to the byte on every machine.
//!
//! The remaining bytes are kept per thread. A render stays on its thread from start to end, and the
//! engine's functions have no argument that could carry them.

use std::cell::Cell;

use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    value::{Rest, ValueKind, ValueOrKwargs},
};

mod metered;

pub(super) use metered::MeteredText;

/// The weight of an entry of a list or map besides its content.
const ENTRY_BYTES: usize = 32;
/// The maximum depth of lists and maps. Values are freed and compared by recursion.
const DEPTH_MAX: usize = 16;

/// The error if no bytes are left. The caller replaces it by an error with the limit.
const SPENT: &str = "the template makes too many bytes of intermediate values";
/// The error if values are nested too deep.
pub(super) const TOO_DEEP: &str = "lists or maps are nested too deep";
/// The error of `osm_number`.
pub(super) const NO_NUMBER: &str = "`*` and `%` work on numbers only";
/// The error of `osm_plain`.
pub(super) const NO_PLAIN: &str = "an attribute of a namespace can hold texts, numbers and lists";
/// The error if other values are added.
pub(super) const NO_SUM: &str = "`+` works on two numbers, two texts or two lists";
/// The error if `none` is printed.
pub(super) const PRINTS_NONE: &str =
    "a value that is printed or joined is not set here; give it a default, or test it with `if`";
/// The error if a list or map is joined or printed.
pub(super) const NO_TEXT: &str = "only texts, numbers and truth values can be printed or joined";

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(0) };
    static IS_SPENT: Cell<bool> = const { Cell::new(false) };
    static PARTS: Cell<Parts> = const { Cell::new(|_| Vec::new()) };
}

/// Returns the parts that a value prints as, if it is neither a list nor a map of the engine.
pub(super) type Parts = fn(&Value) -> Vec<Value>;

/// Starts a render that may allocate this many bytes. `parts` splits the values of the template
/// language.
pub(super) fn start(bytes: usize, parts: Parts) {
    PARTS.set(parts);
    LEFT.set(bytes);
    IS_SPENT.set(false);
}

/// Returns the number of bytes that are left.
pub(super) fn left() -> usize {
    LEFT.get()
}

/// Returns true if the render ran out of bytes.
pub(super) fn is_spent() -> bool {
    IS_SPENT.get()
}

/// Charges bytes, if they are left. Otherwise sets the rest to zero: a function that continues in
/// spite of the error cannot allocate anything more.
pub(super) fn spend(bytes: usize) -> Result<(), Error> {
    if let Some(left) = LEFT.get().checked_sub(bytes) {
        LEFT.set(left);
        return Ok(());
    }
    LEFT.set(0);
    IS_SPENT.set(true);
    Err(refusal(SPENT))
}

pub(super) fn refusal(text: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, text)
}

/// Charges the weight of a value.
pub(super) fn weigh(value: &Value) -> Result<(), Error> {
    weigh_at(value, 0)
}

fn weigh_at(value: &Value, depth: usize) -> Result<(), Error> {
    match value.kind() {
        ValueKind::String => spend(value.as_str().map_or(0, str::len)),
        ValueKind::Bytes => spend(value.as_bytes().map_or(0, <[u8]>::len)),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable if depth >= DEPTH_MAX => {
            Err(refusal(TOO_DEEP))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                spend(ENTRY_BYTES)?;
                weigh_at(&item, depth + 1)?;
            }
            Ok(())
        }
        ValueKind::Map => {
            for key in value.try_iter()? {
                spend(ENTRY_BYTES)?;
                weigh_at(&key, depth + 1)?;
                weigh_at(&value.get_item(&key)?, depth + 1)?;
            }
            Ok(())
        }
        _ => PARTS.get()(value)
            .iter()
            .try_for_each(|part| weigh_at(part, depth)),
    }
}

/// Charges the weight of values as often as they are walked, and returns the weight.
pub(super) fn weigh_times<'v>(
    values: impl IntoIterator<Item = &'v Value>,
    factor: usize,
) -> Result<usize, Error> {
    let before = left();
    values.into_iter().try_for_each(weigh)?;
    let weight = before.saturating_sub(left());
    spend(weight.saturating_mul(factor.saturating_sub(1)))?;
    Ok(weight)
}

/// Adds the functions that rewritten templates call.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_function("osm_made", weighed);
    environment.add_function("osm_weighed", weighed);
    environment.add_function("osm_concat", concat);
    environment.add_function("osm_add", add);
    environment.add_function("osm_indexed", indexed);
    environment.add_function("osm_sliced", sliced);
    environment.add_function("osm_number", number);
    environment.add_function("osm_plain", plain);
    environment.add_function("osm_loop", looped);
    environment.add_function("osm_included", included);
}

/// Wraps a function or filter of the engine. Charges the weight of its arguments, times a factor
/// for the work, and the weight of its result. It does not get an undefined value, which some
/// filters of the engine take for an empty one.
pub(super) fn charged(
    function: Value,
    factor: usize,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    let function = Value::from_function(charged_with_undefined(function, factor));
    move |state, arguments| {
        let arguments = arguments.into_values();
        refuse_undefined(arguments.first())?;
        function.call(state, &arguments)
    }
}

/// As [`charged`], for the filter that is about undefined values.
pub(super) fn charged_with_undefined(
    function: Value,
    factor: usize,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    move |state, arguments| {
        let arguments = arguments.into_values();
        weigh_times(&arguments, factor)?;
        let made = function.call(state, &arguments)?;
        weigh(&made)?;
        Ok(made)
    }
}

/// Refuses an undefined value.
pub(super) fn refuse_undefined(value: Option<&Value>) -> Result<(), Error> {
    if value.is_some_and(Value::is_undefined) {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    Ok(())
}

/// Wraps a filter that passes its other arguments to something for each entry of the first.
pub(super) fn charged_per_entry(
    function: Value,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    let function = Value::from_function(charged(function, 1));
    move |state, arguments| {
        let arguments = arguments.into_values();
        if let Some((entries, rest)) = arguments.split_first() {
            let weight = weigh_times(rest, 1)?;
            spend(entries.len().unwrap_or_default().saturating_mul(weight))?;
        }
        function.call(state, &arguments)
    }
}

fn weighed(value: Value) -> Result<Value, Error> {
    weigh(&value)?;
    Ok(value)
}

fn concat(left: &Value, right: &Value) -> Result<String, Error> {
    let (left, right) = (printed(left)?, printed(right)?);
    spend(left.len() + right.len())?;
    Ok([left.as_ref(), right.as_ref()].concat())
}

/// Returns a value as it is printed.
pub(super) fn printed(value: &Value) -> Result<std::borrow::Cow<'_, str>, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.as_str().unwrap_or_default().into()),
        ValueKind::Bool => Ok(if value.is_true() { "true" } else { "false" }.into()),
        ValueKind::Number => Ok(value.to_string().into()),
        ValueKind::Undefined => Err(Error::from(ErrorKind::UndefinedError)),
        ValueKind::None => Err(refusal(PRINTS_NONE)),
        _ => Err(refusal(NO_TEXT)),
    }
}

fn number(value: Value) -> Result<Value, Error> {
    if value.is_number() {
        Ok(value)
    } else {
        Err(refusal(NO_NUMBER))
    }
}

/// Refuses maps as attributes of a namespace. A namespace that contained itself through a map would
/// never be freed.
fn plain(value: Value) -> Result<Value, Error> {
    weigh(&value)?;
    if holds_map(&value)? {
        return Err(refusal(NO_PLAIN));
    }
    Ok(value)
}

fn holds_map(value: &Value) -> Result<bool, Error> {
    match value.kind() {
        ValueKind::Map | ValueKind::Plain => Ok(true),
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                if holds_map(&item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => Ok(false),
    }
}

/// Charges a loop before its first iteration with the text of all iterations, and with the walk
/// over a value that is not a list.
fn looped(value: Value, body_bytes: usize) -> Result<Value, Error> {
    let passes = match value.as_str() {
        Some(text) => text.len(),
        None => value.len().unwrap_or_default(),
    };
    let walk_bytes = match value.kind() {
        ValueKind::String => 1,
        ValueKind::Iterable => ENTRY_BYTES,
        _ => 0,
    };
    spend(passes.saturating_mul(body_bytes.saturating_add(walk_bytes)))?;
    Ok(value)
}

/// Charges indexing. The engine walks to a character of a string, and to an entry of a value that
/// is not a list.
fn indexed(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => spend(value.as_str().map_or(0, str::len))?,
        ValueKind::Iterable => {
            spend(value.len().unwrap_or_default().saturating_mul(ENTRY_BYTES))?;
        }
        _ => {}
    }
    Ok(value)
}

/// Charges slicing. The engine walks from the start to the beginning of the slice, and copies a
/// string as characters of four bytes to walk it backwards.
fn sliced(value: Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => spend(text.len().saturating_mul(4))?,
        None => spend(value.len().unwrap_or_default().saturating_mul(ENTRY_BYTES))?,
    }
    Ok(value)
}

/// Returns the sum of two numbers, the concatenation of two strings, or that of two lists.
fn add(left: &Value, right: &Value) -> Result<Value, Error> {
    if left.is_integer() && right.is_integer() {
        let (left, right) = (
            i128::try_from(left.clone())?,
            i128::try_from(right.clone())?,
        );
        let sum = left.checked_add(right).ok_or_else(|| refusal(NO_SUM))?;
        return Ok(i64::try_from(sum).map_or_else(|_| Value::from(sum), Value::from));
    }
    if left.is_number() && right.is_number() {
        return Ok(Value::from(
            f64::try_from(left.clone())? + f64::try_from(right.clone())?,
        ));
    }
    if left.as_str().is_some() && right.as_str().is_some() {
        return concat(left, right).map(Value::from);
    }
    for side in [left, right] {
        match side.kind() {
            ValueKind::Seq | ValueKind::Iterable => weigh(side)?,
            ValueKind::Undefined => return Err(Error::from(ErrorKind::UndefinedError)),
            _ => return Err(refusal(NO_SUM)),
        }
    }
    Ok(left.try_iter()?.chain(right.try_iter()?).collect())
}

fn included(name: Value, bytes: usize) -> Result<Value, Error> {
    spend(bytes)?;
    Ok(name)
}
