//! The taints with which a kubelet registers its node, by the rules of its flag: it ends at once,
//! or registers without any, where one is wrong.

use std::collections::BTreeSet;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// The maximum length of a name and of a value, and of the prefix of a key.
const NAME_CHARACTERS_MAX: usize = 63;
const PREFIX_CHARACTERS_MAX: usize = 253;

/// Checks a list such as `dedicated=gpu:NoSchedule,spot:NoExecute`.
///
/// # Errors
///
/// Returns which taint is wrong, and why.
pub(super) fn check(list: &str) -> Result<(), String> {
    let mut known = BTreeSet::new();
    for taint in list.split(',').filter(|_| !list.is_empty()) {
        let refused = |why: &str| Err(format!("`{taint}`: {why}"));
        let Some((named, effect)) = taint.split_once(':') else {
            return refused("it must be key=value:effect or key:effect");
        };
        if !EFFECTS.contains(&effect) {
            return refused("its effect must be NoSchedule, PreferNoSchedule or NoExecute");
        }
        let (key, value) = named.split_once('=').unwrap_or((named, ""));
        let (prefix, name) = match key.split_once('/') {
            Some((prefix, name)) => (Some(prefix), name),
            None => (None, key),
        };
        if !is_name(name) || !prefix.is_none_or(is_domain) {
            return refused("its key is none that Kubernetes takes");
        }
        if !value.is_empty() && !is_name(value) {
            return refused("its value is none that Kubernetes takes");
        }
        if !known.insert((key, effect)) {
            return refused("another taint has its key and effect");
        }
    }
    Ok(())
}

/// A name begins and ends with a letter or a digit, and has dashes, underscores and dots between.
fn is_name(text: &str) -> bool {
    let is_edge = |byte: Option<u8>| byte.is_some_and(|it| it.is_ascii_alphanumeric());
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= NAME_CHARACTERS_MAX
        && text.bytes().all(is_inner)
        && is_edge(text.bytes().next())
        && is_edge(text.bytes().last())
}

/// A domain consists of names in lower case, without underscores.
fn is_domain(text: &str) -> bool {
    let is_lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| {
        part.bytes().all(is_lower)
            && !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= PREFIX_CHARACTERS_MAX && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_are_those_that_a_kubelet_takes() {
        let long = "a".repeat(NAME_CHARACTERS_MAX);
        for list in [
            "",
            "spot:NoExecute",
            "dedicated=gpu:NoSchedule,dedicated=gpu:NoExecute",
            "example.com/a_b.c-d=:PreferNoSchedule",
            &format!("{long}={long}:NoSchedule"),
        ] {
            assert_eq!(check(list), Ok(()), "{list}");
        }
        for (list, told) in [
            ("a", "key:effect"),
            ("a=b", "key:effect"),
            ("a:NoSchedule,", "``: it must be"),
            ("a:noschedule", "its effect"),
            ("a:NoSchedule-", "its effect"),
            ("-a:NoSchedule", "its key"),
            (".com/b:NoSchedule", "its key"),
            ("Example.com/b:NoSchedule", "its key"),
            ("a/b/c:NoSchedule", "its key"),
            (&format!("{long}a:NoSchedule"), "its key"),
            (&format!("a={long}a:NoSchedule"), "its value"),
            ("a=b-:NoSchedule", "its value"),
            ("a=1:NoSchedule,a=2:NoSchedule", "another taint"),
        ] {
            let refused = check(list).expect_err(list);
            assert!(refused.contains(told), "{list}: {refused}");
        }
    }
}
