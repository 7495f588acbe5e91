//! Functions that read and write JSON, YAML and TOML.

use std::collections::BTreeMap;

use minijinja::{Error, Value};

use super::{
    super::{
        json::{self, NoJson, Style},
        toml,
        value::{Kind, List, Map, kind, pointee},
        yaml,
    },
    Function, function, refuse,
    texts::{first, texts},
};

/// The cost of each byte that is read: a byte of JSON can become an entry of a list.
const READING: usize = 32;
/// The cost of creating a YAML parser.
const PARSER_BYTES: usize = 1 << 10;
/// The cost of each byte that is written: a control character takes six bytes.
const WRITING: usize = 8;

pub(super) const TABLE: &[Function] = &[
    function("toJson", (1, 1), WRITING, |a| written(a, Style::Compact)),
    function("mustToJson", (1, 1), WRITING, |a| {
        written(a, Style::Compact)
    }),
    function("toRawJson", (1, 1), WRITING, |a| written(a, Style::Raw)),
    function("mustToRawJson", (1, 1), WRITING, |a| written(a, Style::Raw)),
    function("toPrettyJson", (1, 1), WRITING * 2, |a| {
        written(a, Style::Pretty)
    }),
    function("mustToPrettyJson", (1, 1), WRITING * 2, |a| {
        written(a, Style::Pretty)
    }),
    function("toYaml", (1, 1), WRITING * 2, |a| {
        yaml::write(first(a)?).map(Value::from)
    }),
    function("toToml", (1, 1), WRITING * 2, |a| {
        toml::write(&pointee(first(a)?)).map(Value::from)
    }),
    function("fromJson", (1, 1), READING, |a| {
        Ok(as_map(json::read(&texts::<1>(a)?.concat())))
    }),
    function("fromJsonArray", (1, 1), READING, |a| {
        Ok(as_list(json::read(&texts::<1>(a)?.concat())))
    }),
    function("mustFromJson", (1, 1), READING, |a| {
        json::read(&texts::<1>(a)?.concat()).map_err(refuse)
    }),
    function("fromYaml", (1, 1), READING, |a| read_yaml(a).map(as_map)),
    function("fromYamlArray", (1, 1), READING, |a| {
        read_yaml(a).map(as_list)
    }),
    function("fromToml", (1, 1), READING, |a| {
        Ok(as_map(toml::read(&texts::<1>(a)?.concat())))
    }),
];

fn read_yaml(arguments: &[Value]) -> Result<Result<Value, String>, Error> {
    super::spend(PARSER_BYTES)?;
    Ok(yaml::read(&texts::<1>(arguments)?.concat()))
}

fn written(arguments: &[Value], style: Style) -> Result<Value, Error> {
    match json::write(first(arguments)?, style) {
        Ok(text) => Ok(Value::from(text)),
        // A number that JSON cannot represent gives an empty string.
        Err(NoJson::NoNumber) => Ok(Value::from("")),
        Err(NoJson::Unknown) => Err(refuse(
            "an empty list or map, which is `null` in Go if it is not there; use `default`",
        )),
        Err(NoJson::Spent(error)) => Err(error),
    }
}

/// Returns a document that must be a map. An error becomes the only entry of the map.
fn as_map(read: Result<Value, String>) -> Value {
    let problem = match read {
        Ok(value) => match kind(&value) {
            Kind::Map(_) => return value,
            Kind::Invalid => return Map::value(BTreeMap::new()),
            other => format!("cannot unmarshal {} into a map", other.name()),
        },
        Err(problem) => problem,
    };
    let error = ("Error".to_owned(), Value::from(problem));
    Map::value(BTreeMap::from([error]))
}

/// Returns a document that must be a list.
fn as_list(read: Result<Value, String>) -> Value {
    let problem = match read {
        Ok(value) => match kind(&value) {
            Kind::List(_) => return value,
            Kind::Invalid => return List::value(Vec::new()),
            other => format!("cannot unmarshal {} into a list", other.name()),
        },
        Err(problem) => problem,
    };
    List::texts([problem])
}
