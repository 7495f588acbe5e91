//! Tests of YAML that is dangerous for its parser.

use super::*;

fn parse_text(text: &str) -> Result<ClusterAccess, AccessError> {
    ClusterAccess::parse(text.as_bytes(), &AccessRules::default())
}

/// Creates a valid kubeconfig as people write it.
fn a_text() -> String {
    let authority = base64(&a_pki().authority);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: \
         https://api.example\n    certificate-authority-data: {authority}\nusers:\n- name: u\n  \
         user:\n    token: abc\ncontexts:\n- name: x\n  context: {{cluster: c, user: u}}\n\
         current-context: x\n"
    )
}

#[test]
fn a_kubeconfig_in_yaml_is_accepted() {
    let text = a_text();
    assert!(parse_text(&text).is_ok());
    assert!(parse_text(&format!("# a comment\n---\n{text}")).is_ok());
    assert!(parse_text(&text.replace('\n', "\r\n")).is_ok());
}

#[test]
fn a_large_kubeconfig_is_refused_before_it_is_read() {
    let bytes = KUBECONFIG_BYTES_MAX + 1;
    let expected = AccessError::TooLarge {
        bytes,
        max: KUBECONFIG_BYTES_MAX,
    };
    assert_eq!(parse_text(&"{".repeat(bytes)), Err(expected));
}

#[test]
fn yaml_that_grows_or_hides_is_refused() {
    let text = a_text();
    let nested = |opening: &str| format!("a: {}", opening.repeat(5_000));
    let many = format!("a: [{}]", "1,".repeat(20_000));
    for (text, expected) in [
        (
            format!("{text}a: &a [1]\n"),
            AccessError::Alias { line: 16 },
        ),
        (
            format!("{text}a: &a [1]\nb: *a\n"),
            AccessError::Alias { line: 16 },
        ),
        (
            format!("{text}<<: {{a: 1}}\n"),
            AccessError::Alias { line: 16 },
        ),
        (
            format!("{text}kind: Config\n"),
            AccessError::DuplicateKey { line: 16 },
        ),
        (format!("{text}---\n{text}"), AccessError::SeveralDocuments),
        (many, AccessError::TooComplex { line: 1 }),
    ] {
        assert_eq!(parse_text(&text), Err(expected), "{text:.200}");
    }
    for opening in ["[", "{a: ", "- ", "? "] {
        let refused = parse_text(&nested(opening));
        let text = parse_text(&opening.repeat(5_000));
        assert!(refused.is_err() && text.is_err(), "{opening}");
    }
}

#[test]
fn what_is_no_yaml_or_no_mapping_is_refused() {
    for bytes in [&b"\xff\xfe"[..], b"\x80"] {
        let parsed = ClusterAccess::parse(bytes, &AccessRules::default());
        assert_eq!(parsed, Err(AccessError::NotText));
    }
    assert_eq!(
        parse_text("a: ["),
        Err(AccessError::NotYaml { line: 1, column: 4 })
    );
    let expected = AccessError::WrongType {
        field: "the kubeconfig".to_owned(),
        expected: "a mapping",
    };
    for text in ["[]", "text", "1", &base64("text"), &base64("\u{0}\u{ff}")] {
        assert_eq!(parse_text(text), Err(expected.clone()), "{text:?}");
    }
}

#[test]
fn an_empty_kubeconfig_and_one_encoded_twice_are_named() {
    for text in ["", " \n", "# a comment\n", "---\n", "null"] {
        assert_eq!(parse_text(text), Err(AccessError::Empty), "{text:?}");
    }
    let encoded = base64(&a_text());
    let lines: Vec<&str> = encoded
        .as_bytes()
        .chunks(76)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    for text in [
        encoded.clone(),
        format!("{encoded}\n"),
        lines.join("\n"),
        lines.join("\r\n"),
    ] {
        assert_eq!(parse_text(&text), Err(AccessError::EncodedTwice));
    }
}

#[test]
fn an_error_shows_neither_the_text_nor_a_long_key() {
    let refused = parse_text("users: [s3cr3t: s3cr3t: s3cr3t").unwrap_err();
    assert!(!refused.to_string().contains("s3cr3t"), "{refused}");
    let key = format!("/users/0/user/{}", "k\n".repeat(1_000));
    let refused = parse(&with(a_kubeconfig(&a_pki()), &key, json!("s3cr3t"))).unwrap_err();
    let shown = refused.to_string();
    assert!(
        shown.len() < 200 && !shown.contains('\n') && !shown.contains("s3cr3t"),
        "{shown}"
    );
}

/// Makes a step of `SplitMix64`. It is random enough, and the same on every machine.
fn stir(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    usize::try_from((mixed ^ (mixed >> 27)) >> 33).unwrap()
}

#[test]
fn no_change_of_the_bytes_makes_the_parser_panic_or_show_the_token() {
    let good = a_text().replace("abc", "s3cr3t").into_bytes();
    let marks = b"&*!|>'\"%@`{}[],:?-#~<= \n\t\0\xff0x";
    let mut state = 7;
    for _ in 0..3_000 {
        let mut bytes = good.clone();
        for _ in 0..=stir(&mut state) % 6 {
            let place = stir(&mut state) % bytes.len();
            let mark = marks[stir(&mut state) % marks.len()];
            match stir(&mut state) % 4 {
                0 => bytes[place] = mark,
                1 => bytes.insert(place, mark),
                2 => drop(bytes.drain(place..bytes.len().min(place + 9))),
                _ => bytes.extend_from_within(place..bytes.len().min(place + 40)),
            }
        }
        match ClusterAccess::parse(&bytes, &AccessRules::default()) {
            Ok(access) => assert!(!format!("{access:?}").contains("s3cr3t")),
            Err(error) => assert!(!error.to_string().contains("s3cr3t"), "{error}"),
        }
    }
}
