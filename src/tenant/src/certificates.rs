//! Compares certificates by their content: texts that differ in comments, line breaks or order are
//! equal.

use std::{borrow::Cow, collections::BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::pki_types::pem::{PemObject as _, SectionKind};

/// The end of one boundary, and the beginning of the next.
const JOINED: &str = "----------BEGIN ";
/// The length of a line in PEM, as OpenSSL and Go write it.
const LINE_CHARACTERS: usize = 64;

/// Returns the certificates of a PEM text, sorted and without the text between them. A text that
/// already has this form is returned unchanged, and so is one that contains anything but
/// certificates.
pub fn meaning(pem: &str) -> Cow<'_, str> {
    let Some(certificates) = certificates(pem) else {
        return Cow::Borrowed(pem);
    };
    let text: String = certificates.iter().map(|der| block(der)).collect();
    if text.is_empty() || text == pem {
        Cow::Borrowed(pem)
    } else {
        Cow::Owned(text)
    }
}

/// Returns a PEM text with each boundary on a line of its own. Of certificates that meet on one
/// as `cat` joins files without a last line feed, rustls reads the first, and Go none.
pub fn separated(pem: &str) -> Cow<'_, str> {
    if pem.contains(JOINED) {
        Cow::Owned(pem.replace(JOINED, "-----\n-----BEGIN "))
    } else {
        Cow::Borrowed(pem)
    }
}

/// Returns true if no certificate of one PEM text is in the other. Returns false if one of them
/// contains no certificates, or anything else.
pub fn are_disjoint(one: &str, other: &str) -> bool {
    match (certificates(one), certificates(other)) {
        (Some(one), Some(other)) if !one.is_empty() && !other.is_empty() => one.is_disjoint(&other),
        _ => false,
    }
}

/// Returns the certificates of a PEM text that contains nothing else.
fn certificates(pem: &str) -> Option<BTreeSet<Vec<u8>>> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes())
        .map(|section| match section {
            Ok((SectionKind::Certificate, der)) => Some(der),
            _ => None,
        })
        .collect()
}

fn block(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = encoded.as_str();
    while let Some((line, after)) = rest.split_at_checked(LINE_CHARACTERS) {
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    if !rest.is_empty() {
        text.push_str(rest);
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_meet_on_one_line_are_parted() {
        let (one, two) = (block(&[1; 100]), block(&[2; 48]));
        let joined = format!("{}{two}", one.trim_end());
        assert_eq!(separated(&joined), format!("{one}{two}"));
        assert!(matches!(separated(&one), Cow::Borrowed(_)));
    }

    #[test]
    fn what_stands_beside_certificates_and_their_order_mean_nothing() {
        let (one, two) = (block(&[1; 100]), block(&[2; 48]));
        assert_eq!(one.lines().nth(1).map(str::len), Some(LINE_CHARACTERS));
        let both = [one.as_str(), &two].concat();
        assert!(matches!(meaning(&both), Cow::Borrowed(_)));
        for text in [
            format!("# the authority of berlin\n{one}{two}"),
            format!("{one}\n\n{two}\n"),
            format!("{two}{one}{two}"),
            both.replace('\n', "\r\n"),
            both.trim_end().to_owned(),
        ] {
            assert_eq!(meaning(&text), both, "{text}");
        }
        assert_ne!(meaning(&one), both);
    }

    #[test]
    fn only_texts_of_certificates_without_a_common_one_are_disjoint() {
        let (one, two) = (block(&[1; 100]), block(&[2; 48]));
        let both = [one.as_str(), &two].concat();
        assert!(are_disjoint(&one, &two));
        for (text, other) in [
            (&one, &one),
            (&one, &both),
            (&one, &String::new()),
            (&one, &two.replace("CERTIFICATE", "PRIVATE KEY")),
        ] {
            assert!(!are_disjoint(text, other), "{text}{other}");
            assert!(!are_disjoint(other, text), "{text}{other}");
        }
    }

    #[test]
    fn a_text_of_anything_else_means_itself() {
        let one = block(&[1; 100]);
        let key = one.replace("CERTIFICATE", "PRIVATE KEY");
        for text in [
            "",
            "other",
            "# no certificate\n",
            &one[..60],
            &[one.as_str(), &key].concat(),
        ] {
            assert_eq!(meaning(text), text);
        }
    }
}
