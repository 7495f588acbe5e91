//! Bytes that a template may make on its way to one file.
//!
//! Every value that a template makes is weighed as the tree that it prints as, and its weight is
//! taken off what is left; nothing is given back. That bounds memory and, since each scan weighs
//! what it scans, time; and it does so to the same byte on every machine.
//!
//! What is left is kept per thread: one thread renders one file at a time, and the engine hands
//! its functions nothing that could carry it.

use std::cell::Cell;

use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    value::{Rest, ValueKind, ValueOrKwargs},
};

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
/// What joining or printing something else than a text or a number says.
pub(super) const NO_TEXT: &str = "only texts, numbers and truth values can be printed or joined";

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(0) };
    static IS_SPENT: Cell<bool> = const { Cell::new(false) };
}

/// Starts a file with so many bytes.
pub(super) fn start(bytes: usize) {
    LEFT.set(bytes);
    IS_SPENT.set(false);
}

/// Whether the file ran out of bytes.
pub(super) fn is_spent() -> bool {
    IS_SPENT.get()
}

/// Takes bytes, if they are left.
pub(super) fn spend(bytes: usize) -> Result<(), Error> {
    if let Some(left) = LEFT.get().checked_sub(bytes) {
        LEFT.set(left);
        return Ok(());
    }
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
        _ => Ok(()),
    }
}

/// Adds the functions that rewritten templates call.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_function("osm_made", weighed);
    environment.add_function("osm_weighed", weighed);
    environment.add_function("osm_concat", concat);
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
        let before = LEFT.get();
        arguments.iter().try_for_each(weigh)?;
        let weight = before.saturating_sub(LEFT.get());
        spend(weight.saturating_mul(factor.saturating_sub(1)))?;
        let made = function.call(state, &arguments)?;
        weigh(&made)?;
        Ok(made)
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
        ValueKind::None => Err(refusal(super::functions::PRINTS_NONE)),
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

/// A loop takes the text of all its passes before the first one.
fn looped(value: Value, body_bytes: usize) -> Result<Value, Error> {
    if body_bytes > 0 {
        let passes = match value.as_str() {
            Some(text) => text.len(),
            None => value.len().unwrap_or_default(),
        };
        spend(passes.saturating_mul(body_bytes))?;
    }
    Ok(value)
}

fn included(name: Value, bytes: usize) -> Result<Value, Error> {
    spend(bytes)?;
    Ok(name)
}
