//! Arguments of every kind, small and large.

use minijinja::{Environment, Value};

use super::super::super::{allocation_limit, go_template};

/// The number of sizes.
pub(super) const LEVELS: usize = 3;
/// A number, and the number of bytes of a text, for each size.
const SIZES: [(i64, usize); LEVELS] = [(3, 8), (300, 2 << 10), (20_000, 10 << 10)];

/// A kind of argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Negative,
    Float,
    Bool,
    Text,
    Number,
    Version,
    Array,
    Object,
    Toml,
    Format,
    Star,
    Pattern,
    Classes,
    Base32,
    Base64,
    Method,
    Filter,
    Texts,
    Numbers,
    Map,
    Nested,
    Pointer,
    Nothing,
}

use Kind::{
    Array, Base32, Base64, Bool, Classes, Filter, Float, Format, Int, Map, Method, Negative,
    Nested, Nothing, Number, Numbers, Object, Pattern, Pointer, Star, Text, Texts, Toml, Version,
};

const ALL: [Kind; 24] = [
    Int, Negative, Float, Bool, Text, Number, Version, Format, Star, Pattern, Classes, Method,
    Filter, Texts, Numbers, Map, Nested, Pointer, Nothing, Array, Object, Toml, Base32, Base64,
];
/// The number of kinds that are tried in pairs. The others are documents, which are read alone.
const PAIRED: usize = 19;
/// The kinds that are tried in triples.
const SOME: [Kind; 5] = [Int, Text, Numbers, Map, Pointer];
/// Further triples, for functions that need other kinds.
const TRIPLES: [[Kind; 3]; 9] = [
    [Text, Text, Bool],
    [Text, Text, Texts],
    [Pointer, Method, Pointer],
    [Star, Int, Numbers],
    [Pattern, Text, Text],
    [Method, Text, Text],
    [Method, Text, Int],
    [Method, Text, Negative],
    [Nested, Text, Text],
];

/// Returns the kinds of the arguments of calls: none, one, many pairs, some triples.
pub(super) fn tuples() -> Vec<Vec<Kind>> {
    let ones = ALL.iter().map(|a| vec![*a]);
    let (paired, _) = ALL.split_at(PAIRED);
    let twos = paired
        .iter()
        .flat_map(|a| paired.iter().map(|b| vec![*a, *b]));
    let twos_and_a_third = SOME.iter().flat_map(|a| SOME.iter().map(|b| [*a, *b]));
    let threes = twos_and_a_third.flat_map(|[a, b]| SOME.map(|c| vec![a, b, c]));
    let none = std::iter::once(Vec::new());
    let all = none.chain(ones).chain(twos).chain(threes);
    all.chain(TRIPLES.map(Vec::from)).collect()
}

/// A value of each kind and size.
pub(super) struct Arguments([Vec<Value>; LEVELS]);

impl Arguments {
    /// Creates the arguments. Lists and maps are Go's if the environment can create them.
    pub(super) fn new(environment: &Environment<'_>) -> Self {
        allocation_limit::start(usize::MAX, go_template::printed_parts);
        let maker = Maker(environment);
        Self(SIZES.map(|size| ALL.map(|kind| maker.value(kind, size)).into()))
    }

    pub(super) fn of(&self, tuple: &[Kind], level: usize) -> Vec<Value> {
        let position = |kind: &Kind| ALL.iter().position(|known| known == kind);
        let values = tuple.iter().filter_map(position);
        values
            .map(|position| self.0[level][position].clone())
            .collect()
    }
}

struct Maker<'e>(&'e Environment<'e>);

impl Maker<'_> {
    fn call(&self, name: &str, arguments: &[Value]) -> Option<Value> {
        let (_, function) = self.0.globals().find(|(known, _)| *known == name)?;
        let made = function.call(&mut self.0.empty_state(), arguments);
        Some(made.expect("it takes these arguments"))
    }

    fn list(&self, items: Vec<Value>) -> Value {
        self.call("go_list", &items)
            .unwrap_or_else(|| Value::from(items))
    }

    fn map(&self, pairs: &[(String, Value)]) -> Value {
        let flat = pairs
            .iter()
            .flat_map(|(key, value)| [Value::from(key.as_str()), value.clone()]);
        self.call("go_dict", &flat.collect::<Vec<_>>())
            .unwrap_or_else(|| Value::from_pairs(pairs.iter().cloned()))
    }

    fn value(&self, kind: Kind, (number, bytes): (i64, usize)) -> Value {
        let long = |unit: &str| unit.repeat(bytes / unit.len());
        let version = || Value::from(format!("1.2.3-{}a", long("a.b-")));
        let entry = |index: usize| format!("{index}{}", "ab".repeat(32));
        match kind {
            Int => Value::from(number),
            Negative => Value::from(-number),
            Float => Value::from(2.5),
            Bool => Value::from(true),
            Text => Value::from(long("ab <\u{1}\n ")),
            Number => Value::from("12"),
            Version => version(),
            Array => Value::from(format!("[{}\"a\"]", long("\"a\", "))),
            Object => Value::from(format!("{{\"a\": [{}\"a\"]}}", long("\"a\", "))),
            Toml => Value::from(format!("a = \"{}\"", long("a"))),
            Format => Value::from(format!("%{number}d")),
            Star => Value::from("%*d"),
            Pattern => Value::from(format!(r"(\pL|a){{{}}}", number.min(9))),
            Classes => Value::from(long(r"\pL")),
            Base32 => Value::from(long("MFRGGZDF")),
            Base64 => Value::from(long("YWFh")),
            Method => Value::from("Compare"),
            Filter => Value::from("upper"),
            Texts => self.list((0..=bytes / 64).map(|at| Value::from(entry(at))).collect()),
            Numbers => self.list((0..=bytes / 16).map(Value::from).collect()),
            Map => {
                let pairs = (0..=bytes / 128).map(|at| (entry(at), Value::from("a")));
                self.map(&pairs.collect::<Vec<_>>())
            }
            Nested => {
                let lines = self.map(&[("c".to_owned(), Value::from("d\ne\n"))]);
                let inner = self.map(&[(long("a"), Value::from(1)), ("b".to_owned(), lines)]);
                self.list(vec![inner; bytes / 512 + 1])
            }
            Pointer => self.call("go_semver", &[version()]).unwrap_or_default(),
            Nothing => Value::UNDEFINED,
        }
    }
}
