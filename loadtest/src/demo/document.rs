//! A bootstrap document for people to read: the files in it decoded and cut, what is secret left
//! out.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

const SUFFIX: &str = "-bootstrap-config";
/// The kubelet's bootstrap kubeconfig ends alike, and is no document.
const NOT_SUFFIX: &str = "-kubelet-bootstrap-config";
const KEY: &str = "cloud-config";
/// What stands in place of a secret.
const REDACTED: &str = "<redacted>";
/// Shorter values are words such as `true`, not secrets.
const SECRET_BYTES_MIN: usize = 12;
/// Shorter words of base64's letters are words.
const BASE64_BYTES_MIN: usize = 40;
/// Enough of a file to see what it is.
const FILE_LINES_MAX: usize = 9;

/// A document that is safe to show, and where it is from.
#[derive(Debug)]
pub struct Document {
    /// The Secret that holds it.
    pub secret: String,
    /// The key that it stands under.
    pub key: &'static str,
    /// What it says.
    pub text: String,
}

/// The first bootstrap document among these Secrets, without the secrets of all of them.
pub fn first(secrets: &[Secret]) -> Option<Document> {
    let holder = secrets.iter().find(|secret| {
        let name = secret.name_any();
        name.ends_with(SUFFIX) && !name.ends_with(NOT_SUFFIX)
    })?;
    let bytes = &holder.data.as_ref()?.get(KEY)?.0;
    let decoded = decoded(&String::from_utf8_lossy(bytes));
    Some(Document {
        secret: holder.name_any(),
        key: KEY,
        text: redacted(&decoded, &tokens(secrets)),
    })
}

/// The tokens of service accounts and of joining nodes.
fn tokens(secrets: &[Secret]) -> Vec<String> {
    let fields = secrets
        .iter()
        .flat_map(|secret| secret.data.iter().flatten());
    fields
        .filter(|(key, _)| matches!(key.as_str(), "token" | "token-secret"))
        .map(|(_, value)| String::from_utf8_lossy(&value.0).into_owned())
        .collect()
}

fn redacted(text: &str, values: &[String]) -> String {
    let long = values
        .iter()
        .filter(|value| value.len() >= SECRET_BYTES_MIN);
    long.fold(text.to_owned(), |text, value| text.replace(value, REDACTED))
}

/// The text with the beginning of each file that stands in it in base64.
fn decoded(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let Some(file) = file(line.trim()) else {
            lines.push(line.to_owned());
            continue;
        };
        let indent = " ".repeat(line.len() - line.trim_start().len());
        let shown = file.lines().take(FILE_LINES_MAX);
        lines.extend(shown.map(|line| format!("{indent}{line}")));
        let left = file.lines().count().saturating_sub(FILE_LINES_MAX);
        if left > 0 {
            lines.push(format!("{indent}… {left} more lines of this file"));
        }
    }
    lines.join("\n")
}

fn file(word: &str) -> Option<String> {
    if word.len() < BASE64_BYTES_MIN {
        return None;
    }
    String::from_utf8(STANDARD.decode(word).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    fn a_secret(name: &str, key: &str, value: &str) -> Secret {
        let mut secret = Secret {
            data: Some(BTreeMap::from([(
                key.to_owned(),
                ByteString(value.as_bytes().to_vec()),
            )])),
            ..Secret::default()
        };
        secret.metadata.name = Some(name.to_owned());
        secret
    }

    #[test]
    fn a_token_in_a_file_of_the_document_is_left_out() {
        let file = STANDARD.encode("Authorization: Bearer a-very-long-token\nx\n");
        let document = format!("#cloud-config\nwrite_files:\n- content: |-\n    {file}\n");
        let secrets = [
            a_secret("fetcher", "token", "a-very-long-token"),
            a_secret("a-kubelet-bootstrap-config", "kubeconfig", "no document"),
            a_secret("a-bootstrap-config", "cloud-config", &document),
        ];
        let document = first(&secrets).unwrap();
        assert_eq!(document.secret, "a-bootstrap-config");
        assert_eq!(
            document.text,
            "#cloud-config\nwrite_files:\n- content: |-\n    Authorization: Bearer <redacted>\n    x"
        );
    }

    #[test]
    fn a_long_file_is_cut() {
        let file = STANDARD.encode("a line of the file\n".repeat(FILE_LINES_MAX + 3));
        let text = decoded(&format!("  {file}"));
        assert!(text.ends_with("  … 3 more lines of this file"), "{text}");
        assert_eq!(text.lines().count(), FILE_LINES_MAX + 1);
    }
}
