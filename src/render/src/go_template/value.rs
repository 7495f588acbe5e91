//! Values of Go templates that the engine's own values cannot represent: pointers, which are true
//! whatever they point to; structs, whose missing fields are errors; and maps, which `set` changes
//! in place.
//!
//! | Go | here |
//! |---|---|
//! | no value, a nil interface | undefined |
//! | a nil pointer | `Pointer` to nothing |
//! | a slice | a list |
//! | a number or text of another type than `int`, `float64` and `string` | `Typed` |
//! | a map with texts as keys | `Map` |

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use minijinja::{
    Error, Value,
    value::{Enumerator, Object, ObjectRepr, ValueKind},
};

use super::{
    super::allocation_limit::{spend, weigh},
    problem::refuse,
};

/// The weight of an entry of a map besides its content.
const ENTRY_BYTES: usize = 64;

/// Methods by name. They need no receiver.
pub(super) type Methods = &'static [(&'static str, fn() -> Value)];

/// A pointer.
pub(super) struct Pointer {
    /// The target; `None` for a nil pointer.
    pub(super) target: Option<Value>,
    /// The type of the target of a nil pointer.
    pub(super) type_name: &'static str,
    /// The methods that can be called on a nil pointer of this type.
    pub(super) methods: Methods,
}

impl Pointer {
    pub(super) fn to(target: Value) -> Value {
        Value::from_object(Self {
            target: Some(target),
            type_name: "",
            methods: &[],
        })
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Pointer")
    }
}

impl Object for Pointer {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.target.is_some()
    }
}

/// A struct: its fields in order, by the names that templates, JSON and YAML use.
pub(super) struct Struct {
    pub(super) fields: Vec<Field>,
    pub(super) type_name: &'static str,
}

/// A field of a struct.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) json: &'static str,
    pub(super) value: Value,
    /// True if it is a method, which is neither printed nor written.
    pub(super) is_method: bool,
}

impl Field {
    /// Creates a method that takes no arguments.
    pub(super) fn method(name: &'static str, value: impl Into<Value>) -> Self {
        Self {
            name,
            json: "",
            value: value.into(),
            is_method: true,
        }
    }
}

/// The type of integers that sprig's arithmetic returns.
pub(super) const INT64: &str = "int64";

/// A value of a named type, which determines what it equals, which functions accept it, and how it
/// prints.
pub(super) struct Typed {
    pub(super) type_name: &'static str,
    pub(super) kind_name: &'static str,
    /// The number or string itself.
    pub(super) value: Value,
    /// The result of its `String` method, which is how it prints.
    pub(super) shown: Option<String>,
    pub(super) methods: Vec<Field>,
}

impl Typed {
    /// Creates an integer of a type such as `int64`, which is also its kind.
    pub(super) fn number(type_name: &'static str, number: i64) -> Value {
        Value::from_object(Self {
            type_name,
            kind_name: type_name,
            value: Value::from(number),
            shown: None,
            methods: Vec::new(),
        })
    }

    /// Creates a string of a named type.
    pub(super) fn text(type_name: &'static str, text: &Value, methods: Vec<Field>) -> Value {
        Value::from_object(Self {
            type_name,
            kind_name: "string",
            value: text.clone(),
            shown: None,
            methods,
        })
    }
}

impl fmt::Debug for Typed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.type_name)
    }
}

impl Object for Typed {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.value.is_true()
    }

    fn render(self: &Arc<Self>, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shown {
            Some(shown) => formatter.write_str(shown),
            None => fmt::Display::fmt(&self.value, formatter),
        }
    }
}

/// Returns a value's named type, if it has one.
pub(super) fn typed(value: &Value) -> Option<&Typed> {
    value.downcast_object_ref::<Typed>()
}

impl Struct {
    pub(super) fn field(&self, name: &str) -> Option<&Value> {
        let field = self.fields.iter().find(|field| field.name == name)?;
        Some(&field.value)
    }

    /// Returns the fields that contain data.
    pub(super) fn data(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|field| !field.is_method)
    }
}

impl fmt::Debug for Struct {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Struct")
    }
}

impl Object for Struct {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

/// The type of a map's values, which determines what a missing key reads as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Any,
    Text,
    Bool,
}

/// A map.
pub(super) struct Map {
    entries: Mutex<BTreeMap<String, Value>>,
    pub(super) element: Element,
}

impl Map {
    pub(super) fn new(entries: BTreeMap<String, Value>) -> Self {
        Self {
            entries: Mutex::new(entries),
            element: Element::Any,
        }
    }

    pub(super) fn value(entries: BTreeMap<String, Value>) -> Value {
        Value::from_object(Self::new(entries))
    }

    pub(super) fn typed(entries: BTreeMap<String, Value>, element: Element) -> Value {
        Value::from_object(Self {
            entries: Mutex::new(entries),
            element,
        })
    }

    pub(super) fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Value>> {
        // A map is consistent even after a panic.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value of a key, if there is one.
    pub(super) fn get(&self, key: &str) -> Option<Value> {
        self.entries().get(key).cloned()
    }

    /// Inserts a value. Refuses a map that would contain itself: it would never be freed, and
    /// printing it would never end.
    pub(super) fn put(self: &Arc<Self>, key: &str, value: Value) -> Result<(), Error> {
        spend(ENTRY_BYTES + key.len())?;
        weigh(&value)?;
        if holds(&value, self) {
            return Err(refuse("a map cannot hold itself"));
        }
        self.entries().insert(key.to_owned(), value);
        Ok(())
    }
}

/// Returns true if a value contains a map. The value was weighed before, so it is not deep.
fn holds(value: &Value, wanted: &Arc<Map>) -> bool {
    if let Some(map) = value.downcast_object::<Map>() {
        if Arc::ptr_eq(&map, wanted) {
            return true;
        }
        let entries: Vec<Value> = map.entries().values().cloned().collect();
        return entries.iter().any(|entry| holds(entry, wanted));
    }
    let is_list = value.kind() == ValueKind::Seq;
    is_list
        && value
            .try_iter()
            .is_ok_and(|mut items| items.any(|item| holds(&item, wanted)))
}

impl fmt::Debug for Map {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Map")
    }
}

impl Object for Map {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get(key.as_str()?)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.entries().keys().map(Value::from).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.entries().len())
    }
}

/// Frees the entries one by one, because `set` can nest maps deeper than the stack allows.
impl Drop for Map {
    fn drop(&mut self) {
        let entries = std::mem::take(&mut *self.entries());
        let mut pending: Vec<Value> = entries.into_values().filter(is_container).collect();
        while let Some(value) = pending.pop() {
            if let Some(map) = value.downcast_object::<Self>() {
                drop(value);
                if Arc::strong_count(&map) == 1 {
                    let entries = std::mem::take(&mut *map.entries());
                    pending.extend(entries.into_values().filter(is_container));
                }
            } else if let Some(list) = value.downcast_object::<List>() {
                drop(value);
                if Arc::strong_count(&list) == 1 {
                    pending.extend(list.0.iter().filter(|item| is_container(item)).cloned());
                }
            }
        }
    }
}

fn is_container(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map)
}

/// A list, and the type of its items.
pub(super) struct List(pub(super) Vec<Value>, pub(super) &'static str);

impl List {
    /// Creates a list with items of any type.
    pub(super) fn value(items: Vec<Value>) -> Value {
        Self::of("interface {}", items)
    }

    /// Creates a list with items of a type.
    pub(super) fn of(type_name: &'static str, items: Vec<Value>) -> Value {
        Value::from_object(Self(items, type_name))
    }

    pub(super) fn texts<T: Into<String>>(items: impl IntoIterator<Item = T>) -> Value {
        let items = items.into_iter().map(|item| Value::from(item.into()));
        Self::of("string", items.collect())
    }
}

impl fmt::Debug for List {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("List")
    }
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}

/// A value by its Go kind.
#[derive(Clone, Debug)]
pub(super) enum Kind<'v> {
    /// No value, or a nil interface.
    Invalid,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'v str),
    List(Arc<List>),
    Map(Arc<Map>),
    Struct(Arc<Struct>),
    Pointer(Arc<Pointer>),
    /// A value that is printed by a method of its type.
    Shown(&'v Typed, &'v str),
}

impl Kind<'_> {
    /// Returns the kind's name in messages and for `kindOf`.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::List(_) => "slice",
            Self::Map(_) => "map",
            Self::Struct(_) => "struct",
            Self::Pointer(_) => "ptr",
            Self::Shown(typed, _) => typed.kind_name,
        }
    }
}

/// Returns a value by its Go kind.
pub(super) fn kind(value: &Value) -> Kind<'_> {
    match value.kind() {
        ValueKind::Bool => Kind::Bool(value.is_true()),
        ValueKind::Number => match value.is_integer().then(|| value.as_i64()).flatten() {
            Some(number) => Kind::Int(number),
            None => Kind::Float(f64::try_from(value.clone()).unwrap_or_default()),
        },
        ValueKind::String => Kind::Text(value.as_str().unwrap_or_default()),
        _ => {
            if let Some(list) = value.downcast_object::<List>() {
                Kind::List(list)
            } else if let Some(map) = value.downcast_object::<Map>() {
                Kind::Map(map)
            } else if let Some(pointer) = value.downcast_object::<Pointer>() {
                Kind::Pointer(pointer)
            } else if let Some(fields) = value.downcast_object::<Struct>() {
                Kind::Struct(fields)
            } else if let Some(typed) = typed(value) {
                match &typed.shown {
                    Some(shown) => Kind::Shown(typed, shown),
                    None => kind(&typed.value),
                }
            } else {
                Kind::Invalid
            }
        }
    }
}

/// Returns a value as it is for functions that handle numbers and strings, whatever its type prints
/// as.
pub(super) fn basic(value: &Value) -> Kind<'_> {
    match kind(value) {
        Kind::Shown(typed, _) if typed.value.is_number() => kind(&typed.value),
        other => other,
    }
}

/// Returns the parts that a pointer, a struct or a typed value prints as, which the engine cannot
/// see.
pub(crate) fn printed_parts(value: &Value) -> Vec<Value> {
    if let Some(pointer) = value.downcast_object_ref::<Pointer>() {
        pointer.target.iter().cloned().collect()
    } else if let Some(fields) = value.downcast_object_ref::<Struct>() {
        match fields.field("String") {
            Some(text) => vec![text.clone()],
            None => fields.data().map(|field| field.value.clone()).collect(),
        }
    } else if let Some(typed) = typed(value) {
        let shown = typed.shown.iter().map(|shown| Value::from(shown.as_str()));
        shown.chain([typed.value.clone()]).collect()
    } else {
        Vec::new()
    }
}

/// Returns the target of a pointer. A nil pointer is returned unchanged.
pub(super) fn pointee(value: &Value) -> Value {
    match value.downcast_object::<Pointer>() {
        Some(pointer) => pointer.target.clone().unwrap_or_else(|| value.clone()),
        None => value.clone(),
    }
}
