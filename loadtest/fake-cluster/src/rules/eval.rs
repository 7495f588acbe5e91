//! One expression in CEL over one value: how JSON looks to CEL under a schema, and what went wrong
//! in the words of the real server. It knows nothing of rules and where they stand.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use kube_cel::{
    KubeCelExt,
    cel::{
        Context, ExecutionError, Program, Value as Cel,
        objects::{Key, Map as CelMap, OptionalValue},
    },
};
use serde_json::Value;

use crate::{meta::text, schema::flag};

/// Compiles an expression, or finds it compiled: parsing takes longer than evaluating.
pub(super) fn program(source: &str) -> Result<Arc<Program>, String> {
    type Compiled = Result<Arc<Program>, String>;
    static COMPILED: Mutex<Option<HashMap<String, Compiled>>> = Mutex::new(None);
    let compile = |source: &str| {
        Program::compile(source)
            .map(Arc::new)
            .map_err(|errors| errors.to_string())
    };
    let Ok(mut compiled) = COMPILED.lock() else {
        return compile(source);
    };
    let compiled = compiled.get_or_insert_with(HashMap::new);
    compiled
        .entry(source.to_owned())
        .or_insert_with(|| compile(source))
        .clone()
}

/// Why an expression has no answer.
pub(super) enum Failure {
    /// An operator or function does not take these types.
    Overload,
    /// Anything else, as the real server words it.
    Other(String),
}

impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Self {
        Self::Other(match error {
            ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
            ExecutionError::IndexOutOfBounds(Cel::Int(index)) => {
                format!("index out of bounds: {index}")
            }
            ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
            ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
            ExecutionError::Overflow(..) => "integer overflow".to_owned(),
            ExecutionError::NoSuchOverload
            | ExecutionError::ValuesNotComparable(..)
            | ExecutionError::UnsupportedBinaryOperator(..)
            | ExecutionError::UnsupportedUnaryOperator(..) => return Self::Overload,
            other => other.to_string(),
        })
    }
}

/// What expressions can see: a value and, on updates, the one that it replaces.
pub(super) struct Scope<'a> {
    pub value: &'a Value,
    schema: &'a Value,
    new: Cel,
    old: Option<Cel>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(value: &'a Value, old: Option<&Value>, schema: &'a Value) -> Self {
        Self {
            value,
            schema,
            new: to_cel(value, schema),
            old: old.map(|old| to_cel(old, schema)),
        }
    }

    /// The type in the schema; none for "integer or string".
    pub(super) fn declared_type(&self) -> &str {
        text(self.schema, "/type")
    }

    /// Whether a rule holds; what is no boolean does not.
    pub(super) fn holds(&self, rule: &Program, old_self: OldSelf) -> Result<bool, Failure> {
        match rule.execute(&self.context(old_self))? {
            Cel::Bool(holds) => Ok(holds),
            _ => Ok(false),
        }
    }

    /// The text that an expression makes, without the space around it.
    pub(super) fn text(&self, expression: &Program, old_self: OldSelf) -> Option<String> {
        match expression.execute(&self.context(old_self)) {
            Ok(Cel::String(text)) => Some(text.trim().to_owned()),
            _ => None,
        }
    }

    fn context(&self, old_self: OldSelf) -> Context<'static> {
        let mut context = Context::default().with_all();
        context.add_function("type", |value: Cel| type_name(&value).to_owned());
        for name in [
            "bool", "bytes", "double", "int", "list", "map", "string", "uint",
        ] {
            context.add_variable_from_value(name, name);
        }
        context.add_variable_from_value("self", self.new.clone());
        match (old_self, self.old.clone()) {
            (OldSelf::Optional, old) => {
                let old = old.map_or_else(OptionalValue::none, OptionalValue::of);
                context.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
            }
            (OldSelf::Plain, Some(old)) => context.add_variable_from_value("oldSelf", old),
            (OldSelf::Plain, None) => {}
        }
        context
    }
}

/// How a rule sees the old value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum OldSelf {
    /// As the value itself; without one, the rule is not asked.
    Plain,
    /// As an optional value (`optionalOldSelf`).
    Optional,
}

/// The library has no types as values: their names stand for them.
fn type_name(value: &Cel) -> &'static str {
    match value {
        Cel::Bool(_) => "bool",
        Cel::Bytes(_) => "bytes",
        Cel::Float(_) => "double",
        Cel::Int(_) => "int",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::String(_) => "string",
        Cel::UInt(_) => "uint",
        _ => "",
    }
}

fn to_cel(value: &Value, schema: &Value) -> Cel {
    let declared = text(schema, "/type");
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(number) if declared != "number" => Cel::Int(number),
            _ => number.as_f64().map_or(Cel::Null, Cel::Float),
        },
        Value::String(value) => text_to_cel(value, schema),
        Value::Array(list) => {
            let inner = schema.get("items").unwrap_or(&Value::Null);
            let list = list.iter().map(|item| to_cel(item, inner)).collect();
            Cel::List(Arc::new(list))
        }
        Value::Object(object) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let additional = schema.get("additionalProperties").unwrap_or(&Value::Null);
            let entries = object.iter().map(|(name, value)| {
                let inner = properties.and_then(|known| known.get(name));
                // Keys of maps are data; names of fields must be identifiers.
                let key = match additional {
                    Value::Null => escaped(name),
                    _ => name.clone(),
                };
                (Key::from(key), to_cel(value, inner.unwrap_or(additional)))
            });
            let map = Arc::new(entries.collect());
            Cel::Map(CelMap { map })
        }
    }
}

/// A string, or what its format makes of it.
fn text_to_cel(value: &str, schema: &Value) -> Cel {
    let plain = Cel::from(value);
    let convert = match text(schema, "/format") {
        _ if flag(schema, "x-kubernetes-int-or-string") => return plain,
        "date-time" => "timestamp(self)",
        "duration" => "duration(self)",
        "byte" => "base64.decode(self)",
        _ => return plain,
    };
    let mut context = Context::default().with_all();
    context.add_variable_from_value("self", plain.clone());
    program(convert)
        .ok()
        .and_then(|convert| convert.execute(&context).ok())
        .unwrap_or(plain)
}

/// The name of a field as an identifier, by the rules of the real server.
fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];
