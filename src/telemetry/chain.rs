//! The text of an error with its causes, as a person reads it: in logs, conditions, Events and
//! commands.
//!
//! The errors of libraries repeat their causes, quote values, and print Rust's debug format; some
//! contain the time. Nothing of that is shown.

mod tls;

use std::{error::Error, fmt, io, iter, sync::Arc};

use kube::{
    client::AuthError,
    config::{KubeconfigError, LoadDataError},
    core::Status,
};

/// The most characters of one error in a chain. A server's answer is one, and a hostile one must
/// not fill the disk.
const ERROR_TEXT_CHARS_MAX: usize = 1_024;
/// The reason that kube gives a response whose body is no `Status`.
const NO_STATUS: &str = "Failed to parse error data";
/// An API server's answer for a group of kinds that it does not serve.
const NO_PAGE: &str = "404 page not found";

/// Returns an error with its causes as one text that is safe to log: `error = %chain(&error)`.
///
/// serde's errors quote the value that they stumble over: of these only the place is reported.
/// Every piece is cut at 1,024 characters.
pub fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl fmt::Display + 'a {
    Chain {
        error,
        characters_max: ERROR_TEXT_CHARS_MAX,
    }
}

/// As [`chain`], without a limit: for the terminal of the person who typed a command.
pub fn whole<'a>(error: &'a (dyn Error + 'static)) -> impl fmt::Display + 'a {
    Chain {
        error,
        characters_max: usize::MAX,
    }
}

struct Chain<'a> {
    error: &'a (dyn Error + 'static),
    characters_max: usize,
}

impl fmt::Display for Chain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes = || iter::successors(Some(unwrapped(self.error)), |&error| cause(error));
        let unread = causes().find_map(Unread::of);
        let mut before = String::new();
        for error in causes() {
            let mut text = own_text(error);
            if let Some(unread) = &unread {
                text = text.replace(&unread.quoting, &unread.place);
            }
            // Some errors end with the text of a cause that they do not name as such.
            if text.is_empty() || before.ends_with(&text) {
                continue;
            }
            formatter.write_str(if before.is_empty() { "" } else { ": " })?;
            match text.char_indices().nth(self.characters_max) {
                Some((end, _)) => {
                    let cut = text.get(..end).unwrap_or_default();
                    // A quotation ends, also where it is cut.
                    let is_open = cut.matches('`').count() % 2 == 1;
                    write!(formatter, "{cut}…{}", if is_open { "`" } else { "" })?;
                }
                None => formatter.write_str(&text)?,
            }
            before = text;
        }
        Ok(())
    }
}

/// Looks through wrappers that have no text of their own, and whose `source` skips what they hold.
fn unwrapped<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    if let Some(boxed) = error.downcast_ref::<Box<kube::Error>>() {
        return &**boxed;
    }
    if let Some(shared) = error.downcast_ref::<Arc<kube::Error>>() {
        return &**shared;
    }
    let held = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    held.map_or(error, |held| unwrapped(held))
}

/// Returns the cause of an error. What an API server answered has none: the answer says it all.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let is_answer = matches!(error.downcast_ref(), Some(kube::Error::Api(_)));
    error.source().filter(|_| !is_answer).map(unwrapped)
}

/// Returns the text of an error without that of its cause.
fn own_text(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => return answer(status),
        // Its text is that of its cause.
        Some(kube::Error::Service(_)) => return String::new(),
        _ => {}
    }
    // It names the step of the client in Rust's debug format; its cause says what happened.
    if error.is::<hyper_util::client::legacy::Error>() && error.source().is_some() {
        return String::new();
    }
    // These have the path in Rust's debug format.
    if let Some(KubeconfigError::ReadConfig(_, path)) = error.downcast_ref() {
        return format!("cannot read {}", path.display());
    }
    if let Some(LoadDataError::ReadFile(_, path)) = error.downcast_ref() {
        return format!("cannot read {}", path.display());
    }
    // It has the whole output of the command, which may contain a token. Its errors are printed as
    // they come.
    if let Some(AuthError::AuthExecRun { out, .. }) = error.downcast_ref() {
        return format!("the command in the kubeconfig failed ({})", out.status);
    }
    if let Some(sentence) = error.downcast_ref().and_then(tls::sentence) {
        return sentence;
    }
    let text = error.to_string();
    let repeated = error.source().map(ToString::to_string);
    let own = repeated
        .filter(|repeated| !repeated.is_empty())
        .and_then(|repeated| text.split_once(&repeated).map(|(own, _)| own.to_owned()));
    own.map_or(text, |own| own.trim_end_matches([':', ' ', '(']).to_owned())
}

/// Returns what an API server answered, in its own words where it has any. They are quoted: a
/// hostile server's could otherwise read as advice of this program.
fn answer(status: &Status) -> String {
    let (code, message) = (status.code, status.message.trim());
    if message == NO_PAGE {
        return "the API server does not serve this kind of object".to_owned();
    }
    if status.reason == NO_STATUS || message.is_empty() {
        let line = message.lines().next().unwrap_or_default();
        let said = if line.is_empty() {
            String::new()
        } else {
            format!(": {}", quoted(line))
        };
        return format!("the server answers HTTP {code}{said}");
    }
    let joined = |text: &str| text.to_lowercase().replace(' ', "");
    let is_said = joined(message).contains(&joined(&status.reason));
    let said = if is_said {
        quoted(message)
    } else {
        quoted(&format!("{message}: {}", status.reason))
    };
    format!("the API server says {said}")
}

/// Quotes a text that another program has chosen.
pub fn quoted(text: &str) -> String {
    format!("`{}`", text.replace('`', "'"))
}

/// A text that could not be read as what it should be.
struct Unread {
    /// The message of serde, values included.
    quoting: String,
    /// The part that may be shown.
    place: String,
}

impl Unread {
    fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let place = if let Some(json) = error.downcast_ref::<serde_json::Error>() {
            let (line, column) = (json.line(), json.column());
            format!("not the JSON that was expected, at line {line} column {column}")
        } else {
            return Self::of_yaml(error);
        };
        Some(Self {
            quoting: error.to_string(),
            place,
        })
    }

    fn of_yaml(error: &(dyn Error + 'static)) -> Option<Self> {
        let yaml: &serde_saphyr::Error = match error.downcast_ref() {
            // It does not name its cause as such.
            Some(KubeconfigError::Parse(yaml)) => yaml,
            _ => error.downcast_ref()?,
        };
        let place = match yaml.location() {
            Some(place) => format!(", from line {}, column {} on", place.line(), place.column()),
            None => String::new(),
        };
        Some(Self {
            quoting: yaml.to_string(),
            place: format!("not the YAML that was expected{place}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher;

    use super::*;

    fn answered(code: u16, message: &str, reason: &str) -> kube::Error {
        let status = Status::failure(message, reason).with_code(code);
        kube::Error::Api(status.boxed())
    }

    fn forbidden() -> kube::Error {
        let message = "secrets is forbidden: User \"a\" cannot list resource \"secrets\"";
        answered(403, message, "Forbidden")
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot keep the certificate: {source}")]
    struct Wrapper {
        source: Box<kube::Error>,
    }

    #[test]
    fn the_answer_of_an_api_server_is_shown_once_and_not_in_debug_form() {
        let said = "the API server says `secrets is forbidden: User \"a\" cannot list resource \
                    \"secrets\"`";
        let list = watcher::Error::InitialListFailed(forbidden());
        let start = watcher::Error::WatchStartFailed(forbidden());
        let boxed = Wrapper {
            source: Box::new(forbidden()),
        };
        let reported = anyhow::Error::new(forbidden()).context("b").context("a");
        let hidden = io::Error::other(forbidden());
        for (shown, expected) in [
            (chain(&forbidden()).to_string(), said.to_owned()),
            (
                chain(&list).to_string(),
                format!("failed to perform initial object list: {said}"),
            ),
            (
                chain(&start).to_string(),
                format!("failed to start watching object: {said}"),
            ),
            (
                chain(&boxed).to_string(),
                format!("cannot keep the certificate: {said}"),
            ),
            (
                chain(reported.as_ref()).to_string(),
                format!("a: b: {said}"),
            ),
            (chain(&hidden).to_string(), said.to_owned()),
        ] {
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn a_kubeconfig_that_cannot_be_read_is_not_quoted() {
        let text = "users: [{name: admin, user: {token: hunter2}]";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, text).unwrap();
        let unread = kube::config::Kubeconfig::read_from(&file).unwrap_err();
        let shown = chain(&unread).to_string();
        assert!(shown.contains("from line 1, column "), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
        let missing = kube::config::Kubeconfig::read_from("/no/such/file").unwrap_err();
        let expected = "cannot read /no/such/file: No such file or directory (os error 2)";
        assert_eq!(chain(&missing).to_string(), expected);
    }

    #[test]
    fn an_answer_is_a_sentence_whatever_its_body_was() {
        for (code, message, reason, expected) in [
            (
                403,
                "quota exceeded",
                "Forbidden",
                "the API server says `quota exceeded: Forbidden`",
            ),
            (
                403,
                "denied; run `kubectl`",
                "Forbidden",
                "the API server says `denied; run 'kubectl': Forbidden`",
            ),
            (
                404,
                "pods \"a\" not found",
                "NotFound",
                "the API server says `pods \"a\" not found`",
            ),
            (
                404,
                "404 page not found\n",
                NO_STATUS,
                "the API server does not serve this kind of object",
            ),
            (
                502,
                "Bad gateway\nnginx",
                NO_STATUS,
                "the server answers HTTP 502: `Bad gateway`",
            ),
            (503, "", "", "the server answers HTTP 503"),
        ] {
            let error = answered(code, message, reason);
            assert_eq!(chain(&error).to_string(), expected);
        }
    }

    #[test]
    fn values_that_serde_quotes_are_not_shown() {
        let error = serde_json::from_str::<u8>("\"c4n4ry\"").unwrap_err();
        let error = kube::Error::SerdeError(error);
        assert_eq!(
            chain(&error).to_string(),
            "Error deserializing response: not the JSON that was expected, at line 1 column 8"
        );
    }
}
