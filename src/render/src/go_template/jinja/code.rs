//! Jinja expressions, with what is known about their values.

use std::collections::BTreeSet;

use super::{
    super::data::is_root_field,
    Outcome, Place, Writer,
    kinds::{self, Entry, Kind, Record, Target},
};

/// The precedence of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Choice,
    Or,
    And,
    Not,
    Comparison,
    Concatenation,
    Filter,
    Atom,
}

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) text: String,
    pub(super) level: Level,
    pub(super) kind: Kind,
    /// The expression for Go's own value, if it is a different one.
    pub(super) go: Option<String>,
    pub(super) nature: Nature,
}

/// What may happen when an expression is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// It is computed, which costs something.
    Made,
    /// It has one value while it is in scope, and a short name.
    Stable,
    /// It is undefined where Go's template fails. Printing or testing it fails, too, but other uses
    /// may not.
    Unsure,
}

impl Code {
    pub(super) fn made(text: String, level: Level, kind: Kind) -> Self {
        Self {
            text,
            level,
            kind,
            go: None,
            nature: Nature::Made,
        }
    }

    pub(super) fn stable(text: String, kind: Kind) -> Self {
        Self {
            nature: Nature::Stable,
            ..Self::made(text, Level::Atom, kind)
        }
    }

    /// Creates the expression of a Go value.
    pub(super) fn go(text: String) -> Self {
        Self::made(text, Level::Atom, Kind::Go)
    }

    pub(super) fn literal(text: &str) -> Self {
        Self::made(quoted(text), Level::Atom, Kind::Text)
    }

    /// Creates the expression of the data as a whole.
    pub(super) fn root() -> Self {
        Self::stable(String::new(), Kind::Root)
    }

    /// Creates the expression of nil.
    pub(super) fn nothing() -> Self {
        Self::stable("none".to_owned(), Kind::Nothing)
    }

    /// Returns the text, in parentheses if it binds less tightly than its context.
    pub(super) fn at(&self, level: Level) -> String {
        bracketed(&self.text, self.level, level)
    }

    /// Returns true if it is Go's value without a conversion.
    pub(super) fn is_scalar(&self) -> bool {
        self.kind.is_scalar() && self.nature != Nature::Unsure
    }

    pub(super) fn is_text(&self) -> bool {
        self.kind == Kind::Text && self.is_scalar()
    }
}

/// Returns a text in parentheses if it binds less tightly than its context.
pub(super) fn bracketed(text: &str, own: Level, around: Level) -> String {
    if own < around {
        format!("({text})")
    } else {
        text.to_owned()
    }
}

/// Returns a Jinja string literal. Its escapes are those of JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A condition, with the pointers that are not nil if it is true, and if it is false.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) text: String,
    pub(super) level: Level,
    /// The opposite condition, if it is not `not` and the text.
    pub(super) contrary: Option<String>,
    pub(super) if_true: BTreeSet<String>,
    pub(super) if_false: BTreeSet<String>,
}

impl Condition {
    pub(super) fn of(text: String, level: Level) -> Self {
        Self {
            text,
            level,
            contrary: None,
            if_true: BTreeSet::new(),
            if_false: BTreeSet::new(),
        }
    }

    pub(super) fn at(&self, level: Level) -> String {
        bracketed(&self.text, self.level, level)
    }

    /// Returns the opposite condition.
    pub(super) fn not(self) -> Self {
        let text = match &self.contrary {
            Some(contrary) => contrary.clone(),
            None => format!("not {}", self.at(Level::Comparison)),
        };
        let level = match self.contrary {
            Some(_) => Level::Comparison,
            None => Level::Not,
        };
        Self {
            text,
            level,
            contrary: None,
            if_true: self.if_false,
            if_false: self.if_true,
        }
    }
}

impl Writer<'_> {
    /// Returns true if a pointer is known not to be nil here.
    pub(super) fn is_set(&self, code: &Code) -> bool {
        self.set.contains(&code.text)
    }

    /// Returns the expression for Go's own value.
    pub(super) fn go_of(&self, code: &Code) -> Outcome<String> {
        match (&code.go, code.kind) {
            (Some(go), _) if !code.is_scalar() => Ok(go.clone()),
            (_, Kind::Root) => Err(self.refuse(
                "the data as a whole (`.` or `$`) is given to a function, which Jinja has no \
                 value for; give it the fields that it needs",
            )),
            _ => Ok(code.text.clone()),
        }
    }

    /// Returns the same as an expression with Go's value.
    pub(super) fn as_go(&self, code: &Code) -> Outcome<Code> {
        let text = self.go_of(code)?;
        let level = if text == code.text {
            code.level
        } else {
            Level::Atom
        };
        Ok(Code::made(text, level, Kind::Go))
    }

    /// Returns nested fields of a value.
    pub(super) fn fields(&self, base: Code, names: &[String]) -> Outcome<Code> {
        let mut names = names.iter();
        names.try_fold(base, |base, name| self.field(&base, name))
    }

    fn field(&self, base: &Code, name: &str) -> Outcome<Code> {
        let found = match base.kind {
            Kind::Root if is_root_field(name) => return Ok(root_field(name)),
            Kind::Root if self.place == Place::Template => {
                return Err(self.refuse(&format!(
                    "there is no variable `{name}`, so Go fails wherever the profile is used"
                )));
            }
            Kind::Root => return Ok(Code::go(format!("go_no_field({})", quoted(name)))),
            Kind::Nothing => return Ok(Code::go("none".to_owned())),
            Kind::Struct(record) => kinds::field(record, name).map(|kind| (kind, base.nature)),
            Kind::Pointer(Target::Network) => return self.network_field(base, name),
            Kind::Pointer(Target::Map) if self.is_set(base) => {
                Some((Kind::Entry(Entry::Text), Nature::Stable))
            }
            Kind::Map(entry) if base.nature == Nature::Stable => {
                Some((Kind::Entry(entry), Nature::Stable))
            }
            _ => None,
        };
        match found {
            Some(found) => self.member(base, name, found),
            None => self.go_field(base, name),
        }
    }

    /// Returns a field of the network. If it is nil, only its methods can be called.
    fn network_field(&self, base: &Code, name: &str) -> Outcome<Code> {
        let Some(kind) = kinds::field(Record::Network, name) else {
            return self.go_field(base, name);
        };
        match name {
            "GetIPFamily" => Ok(root_field("NetworkIPFamily")),
            _ if self.is_set(base) => self.member(base, name, (kind, Nature::Stable)),
            "IsStaticIPConfig" => Ok(Code::made(
                format!("{0} is not none and {0}.{name}", base.text),
                Level::And,
                kind,
            )),
            _ => self.member(base, name, (kind, Nature::Unsure)),
        }
    }

    fn member(&self, base: &Code, name: &str, (kind, nature): (Kind, Nature)) -> Outcome<Code> {
        let text = if is_identifier(name) {
            format!("{}.{name}", base.text)
        } else {
            format!("{}[{}]", base.text, quoted(name))
        };
        Ok(Code {
            go: Some(self.go_field(base, name)?.text),
            nature,
            ..Code::stable(text, kind)
        })
    }

    fn go_field(&self, base: &Code, name: &str) -> Outcome<Code> {
        let go = self.go_of(base)?;
        Ok(Code::go(format!("go_field({go}, {})", quoted(name))))
    }

    /// Returns a value as an action prints it.
    pub(super) fn printed(&self, code: &Code) -> Outcome<String> {
        Ok(match code.kind {
            Kind::Text | Kind::Truth | Kind::Number => code.text.clone(),
            Kind::Pointer(Target::Text | Target::Number | Target::Age) if self.is_set(code) => {
                code.text.clone()
            }
            Kind::Pointer(Target::Age) => {
                format!("\"nil\" if {0} is none else {0}", code.text)
            }
            Kind::Pointer(Target::Text | Target::Number) => {
                format!("\"<nil>\" if {0} is none else {0}", code.text)
            }
            Kind::Entry(_) => format!("{}|default(\"<no value>\")", code.text),
            Kind::List if code.nature == Nature::Stable => {
                format!("\"[\" ~ {}|join(\" \") ~ \"]\"", code.text)
            }
            _ => format!("go_text({})", self.go_of(code)?),
        })
    }

    /// Returns the condition that a value is true.
    pub(super) fn truth(&self, code: &Code) -> Outcome<Condition> {
        Ok(match code.kind {
            Kind::Pointer(_) if self.is_set(code) => Condition::of("true".into(), Level::Atom),
            Kind::Pointer(_) => Condition {
                contrary: Some(format!("{} is none", code.text)),
                if_true: BTreeSet::from([code.text.clone()]),
                ..Condition::of(format!("{} is not none", code.text), Level::Comparison)
            },
            Kind::Struct(_) if code.nature == Nature::Unsure => {
                Condition::of(self.go_of(code)?, Level::Atom)
            }
            Kind::Root | Kind::Struct(_) => Condition::of("true".to_owned(), Level::Atom),
            Kind::Nothing => Condition::of("false".to_owned(), Level::Atom),
            Kind::Entry(Entry::Text) => {
                Condition::of(format!("{}|default(\"\")", code.text), Level::Filter)
            }
            Kind::Entry(Entry::Truth) => {
                Condition::of(format!("{}|default(false)", code.text), Level::Filter)
            }
            _ => Condition::of(code.text.clone(), code.level),
        })
    }
}

/// Returns a variable of the data.
fn root_field(name: &str) -> Code {
    let kind = kinds::variable(name);
    let go = (!kind.is_scalar()).then(|| format!("go_data({}, {name})", quoted(name)));
    Code {
        go,
        ..Code::stable(name.to_owned(), kind)
    }
}

/// Words that are not names in Jinja.
pub(super) const WORDS: [&str; 16] = [
    "and", "else", "false", "False", "if", "in", "is", "loop", "none", "None", "not", "or", "true",
    "True", "self", "caller",
];

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    let is_first = |first: char| first.is_ascii_alphabetic() || first == '_';
    characters.next().is_some_and(is_first)
        && characters.all(|next| next.is_ascii_alphanumeric() || next == '_')
        && !WORDS.contains(&name)
}
