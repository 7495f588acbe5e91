//! sprig's functions on paths.

use minijinja::Value;

use super::{
    Function, function,
    texts::{one, texts},
};

pub(super) const TABLE: &[Function] = &[
    function("base", (1, 1), 1, |a| one(a, base)),
    function("osBase", (1, 1), 1, |a| one(a, base)),
    function("dir", (1, 1), 2, |a| one(a, dir)),
    function("osDir", (1, 1), 2, |a| one(a, dir)),
    function("clean", (1, 1), 2, |a| one(a, clean)),
    function("osClean", (1, 1), 2, |a| one(a, clean)),
    function("ext", (1, 1), 1, |a| one(a, ext)),
    function("osExt", (1, 1), 1, |a| one(a, ext)),
    function("isAbs", (1, 1), 1, |a| {
        let [path] = texts(a)?;
        Ok(Value::from(path.starts_with('/')))
    }),
    function("osIsAbs", (1, 1), 1, |a| {
        let [path] = texts(a)?;
        Ok(Value::from(path.starts_with('/')))
    }),
];

fn base(path: &str) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    let trimmed = path.trim_end_matches('/');
    match trimmed.rsplit('/').next() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => "/".to_owned(),
    }
}

fn dir(path: &str) -> String {
    let end = path.rfind('/').map_or(0, |at| at + 1);
    clean(path.get(..end).unwrap_or_default())
}

fn clean(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (is_absolute, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

fn ext(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let at = name.rfind('.');
    at.and_then(|at| name.get(at..))
        .unwrap_or_default()
        .to_owned()
}
