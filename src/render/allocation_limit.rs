//! Bytes that a profile's templates may make in one render.
//!
//! Every value that a template makes is weighed as the tree that it prints as, and its weight is
//! taken off what is left; nothing is given back. That bounds memory and, since each scan weighs
//! what it scans, time; and it does so to the same byte on every machine.
//!
//! What is left is kept per thread: a render stays on its thread from start to end, and the engine
//! hands its functions nothing that could carry it.

use std::cell::Cell;

use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    value::{Rest, ValueKind, ValueOrKwargs},
};

mod metered;

pub(super) use metered::MeteredText;

/// What an entry of a list or map weighs besides its content.
const ENTRY_BYTES: usize = 32;
/// How deep lists and maps may nest. Values are freed and compared by recursion.
const DEPTH_MAX: usize = 16;

/// What running out says; who renders turns it into an error with the limit.
const SPENT: &str = "the template makes too many bytes of intermediate values";
/// What nesting too deep says.
pub(super) const TOO_DEEP: &str = "lists or maps are nested too deep";
/// What `osm_number` says.
pub(super) const NO_NUMBER: &str = "`*` and `%` work on numbers only";
/// What `osm_plain` says.
pub(super) const NO_PLAIN: &str = "an attribute of a namespace can hold texts, numbers and lists";
/// What adding other values says.
pub(super) const NO_SUM: &str = "`+` works on two numbers, two texts or two lists";
/// What printing `none` says.
pub(super) const PRINTS_NONE: &str =
    "`none` is printed or joined; say what stands in its place, or ask `if`";
/// What joining or printing something else than a text or a number says.
pub(super) const NO_TEXT: &str = "only texts, numbers and truth values can be printed or joined";

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(0) };
    static IS_SPENT: Cell<bool> = const { Cell::new(false) };
    static PARTS: Cell<Parts> = const { Cell::new(|_| Vec::new()) };
}

/// Returns what a value prints as that is neither a list nor a map of the engine.
pub(super) type Parts = fn(&Value) -> Vec<Value>;

/// Starts a render that may allocate this many bytes. Values of the templates' language have these
/// parts.
pub(super) fn start(bytes: usize, parts: Parts) {
    PARTS.set(parts);
    LEFT.set(bytes);
    IS_SPENT.set(false);
}

/// Bytes that are left.
pub(super) fn left() -> usize {
    LEFT.get()
}

/// Whether the render ran out of bytes.
pub(super) fn is_spent() -> bool {
    IS_SPENT.get()
}

/// Takes bytes, if they are left. Where they are not, nothing is left at all: a function that goes
/// on in spite of the error makes nothing more.
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

/// Takes a value's weight.
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

/// Takes the weight of values as often as they are walked, and returns it.
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

/// A function of the engine that takes the weight of its arguments, times a factor for what it does
/// with them, and the weight of what it makes.
pub(super) fn charged(
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

/// The same for a filter that hands its further arguments to something for each entry of the first.
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

/// A value as it is printed.
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

/// A namespace that held itself, by way of a map, would never be freed.
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

/// A loop takes the text of all its passes before the first one, and what it takes to walk a value
/// that is no list.
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

/// The engine finds a character of a text, and an entry of a value that is no list, by walking to
/// it.
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

/// The engine walks from the start to where a slice begins, and copies a text as characters of four
/// bytes to walk it backwards.
fn sliced(value: Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => spend(text.len().saturating_mul(4))?,
        None => spend(value.len().unwrap_or_default().saturating_mul(ENTRY_BYTES))?,
    }
    Ok(value)
}

/// The sum of two numbers, of two texts, or of two lists.
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
