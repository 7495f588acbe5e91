//! Tests that values of users are written into documents as they are, or refused: by rule, and with
//! thousands of random values. A value that ends its place could add a command.

use rand::{RngExt, SeedableRng, rngs::StdRng};

use self::read_back::check_read_back;
use super::documents::{MACHINE, a_config};
use super::*;
use crate::encode::cloud_init;
use osm_api::{
    config::ConfigHalf,
    profile::{CloudProvider, DropIn, FileContentInline, Unit},
};

mod read_back;

/// A place for a value, and a function that creates a config with it.
type Place = (&'static str, fn(&str) -> ConfigHalf);

const PLACES: [Place; 13] = [
    ("path", |text| half_with_file(text, "", None)),
    ("content", |text| half_with_file("/f", text, None)),
    ("encoding", |text| half_with_file("/f", "", Some(text))),
    ("key", |text| ConfigHalf {
        user_ssh_keys: vec![text.to_owned()],
        ..ConfigHalf::default()
    }),
    ("unit name", |text| half_with_unit(text, "", "")),
    ("unit content", |text| half_with_unit("a.service", text, "")),
    ("drop-in content", |text| {
        half_with_unit("a.service", "", text)
    }),
    ("bootcmd", |text| {
        with_module(|modules| modules.bootcmd = vec![text.to_owned()])
    }),
    ("runcmd", |text| {
        with_module(|modules| modules.runcmd = vec![text.to_owned()])
    }),
    ("subscription key", |text| {
        with_module(|modules| {
            modules
                .rh_subscription
                .extend([(text.to_owned(), "x".to_owned())]);
        })
    }),
    ("subscription value", |text| {
        with_module(|modules| {
            drop(
                modules
                    .rh_subscription
                    .insert("password".to_owned(), text.to_owned()),
            );
        })
    }),
    ("repository", |text| {
        with_module(|modules| {
            let settings = BTreeMap::from([(text.to_owned(), text.to_owned())]);
            modules.yum_repos.insert(text.to_owned(), settings);
        })
    }),
    ("repository folder", |text| {
        with_module(|modules| modules.yum_repo_dir = Some(text.to_owned()))
    }),
];

fn half_with_file(path: &str, data: &str, encoding: Option<&str>) -> ConfigHalf {
    let inline = FileContentInline {
        encoding: encoding.map(str::to_owned),
        data: data.to_owned(),
    };
    let mut file = a_file(path, data);
    file.content.inline = Some(inline);
    ConfigHalf {
        files: vec![file],
        ..ConfigHalf::default()
    }
}

fn half_with_unit(name: &str, content: &str, drop_in: &str) -> ConfigHalf {
    let unit = Unit {
        name: name.to_owned(),
        content: Some(content.to_owned()),
        drop_ins: vec![DropIn {
            name: "a.conf".to_owned(),
            content: drop_in.to_owned(),
        }],
        ..Unit::default()
    };
    ConfigHalf {
        units: vec![unit],
        ..ConfigHalf::default()
    }
}

fn with_module(change: impl FnOnce(&mut CloudInitModules)) -> ConfigHalf {
    let mut modules = CloudInitModules::default();
    change(&mut modules);
    ConfigHalf {
        modules: Some(modules),
        ..ConfigHalf::default()
    }
}

fn document(half: ConfigHalf) -> Result<String, RenderError> {
    let config = a_config(CloudProvider::Aws, half);
    let document = cloud_init::encode(&config, Half::Provisioning, MACHINE)?;
    Ok(String::from_utf8(document.as_bytes().to_vec()).unwrap())
}

fn half_with(place: &str, text: &str) -> ConfigHalf {
    let found = PLACES.iter().find(|(name, _)| *name == place);
    found.unwrap().1(text)
}

/// Checks that every text is refused there, and that the reason does not quote it.
fn refuses(places: &[&str], texts: &[&str]) {
    for place in places {
        for text in texts {
            let error = document(half_with(place, text)).expect_err(&format!("{place}: {text:?}"));
            assert_eq!(error.category(), "unsafe-value", "{place}: {error}");
        }
    }
}

/// Checks that every text is accepted there, and reads back as it was written.
fn takes(places: &[&str], texts: &[&str]) {
    for place in places {
        for text in texts {
            let half = half_with(place, text);
            let document = document(half.clone());
            check_read_back(&document.expect(place), &half);
        }
    }
}

const LINES: [&str; 9] = [
    "a\nb",
    "a\rb",
    "a\0b",
    "a\x1bb",
    "a\u{85}b",
    "a\u{2028}b",
    "a\u{2029}b",
    "\u{feff}a",
    "a\x7f",
];
const ONE_LINE: [&str; 10] = [
    "path",
    "encoding",
    "key",
    "unit name",
    "bootcmd",
    "runcmd",
    "subscription key",
    "subscription value",
    "repository",
    "repository folder",
];
const BLOCKS: [&str; 3] = ["content", "unit content", "drop-in content"];
const BARE: [&str; 6] = [
    "bootcmd",
    "runcmd",
    "subscription key",
    "subscription value",
    "repository",
    "repository folder",
];

#[test]
fn a_line_ends_where_its_author_ended_it() {
    refuses(&ONE_LINE, &LINES);
    // In a text of several lines, a line break is allowed.
    refuses(&BLOCKS, &LINES[1..]);
}

#[test]
fn a_quoted_place_takes_every_text_of_one_line() {
    refuses(&["unit name"], &["a\"b", "a\\nb"]);
    let texts = [
        "/a b: c #d",
        " /a",
        "{{ a }}",
        "- a",
        "\"a\"",
        "%a",
        "ä\t€",
        "yes",
        "=",
        "it's",
        "'",
        "a''",
    ];
    takes(&["path", "encoding"], &texts);
    takes(&["unit name"], &["a: b #c", "{{ a }}", "it's", " a "]);
    takes(
        &["key"],
        &[
            "ssh-ed25519 AAAA= a@b #c",
            "from=\"10.0.0.0/8\" ssh-rsa AAAA",
            "ssh-ed25519 AAAA somebody's laptop",
        ],
    );
}

#[test]
fn a_block_takes_every_text_that_does_not_end_it() {
    refuses(
        &BLOCKS,
        &[
            "  a\nb",
            "  a\n b",
            "  \na",
            "   \n  a",
            " a\n\tb",
            "  a\n \t\n",
        ],
    );
    let texts = [
        " a",
        "  a\n  b\n",
        "    a\n      b\n\n \n    c",
        "\n a",
        " \n  a",
        "  \n  a\n      \n  ",
        "   ",
        "  \n \n",
        "",
        "a",
        "a\n",
        "a\n\n\n",
        "\n\na",
        "\ta",
        "a\n  b\n c",
        "a\n   \nb",
        "# a",
        "- a: 'b'",
        "'",
        "\"",
        "a: b\n#cloud-config\nruncmd:\n- c",
        "---\n...",
        "%YAML 1.1",
        "{{ a }}",
        "a  ",
        "a\n  ",
        "<MACHINE_NAME>",
    ];
    takes(&BLOCKS, &texts);
}

/// Texts that end a value without quotes, or change its type.
const BROKEN: [&str; 39] = [
    "a: b",
    "a:",
    "a:\tb",
    "a #b",
    "a\t#b",
    " a",
    "a ",
    "\ta",
    "a\tb",
    "a\t",
    "- a",
    "-",
    "? a",
    ": a",
    "{{ a }}",
    "{a}",
    "[a",
    "&a",
    "*a",
    "!a",
    "|",
    "> a",
    "%a",
    "@a",
    "`a`",
    "#a",
    ",a",
    "'a' b",
    "\"a",
    "'a",
    "~",
    "null",
    "=",
    "<<",
    "0755",
    "1.50",
    "1:30",
    "2026-01-01",
    "'a\nb'",
];

#[test]
fn a_bare_place_takes_what_yaml_reads_as_that_text() {
    refuses(&BARE, &BROKEN);
    refuses(&["subscription key", "repository"], &["", "'a'"]);
    refuses(
        &["bootcmd", "runcmd"],
        &["", "yes", "true", "7", "[a, yes]", "[[a]]", "[a] b"],
    );
    refuses(
        &["subscription key", "subscription value"],
        &["yes", "True", "off"],
    );
    takes(
        &BARE,
        &[
            "a",
            "a b",
            "a'b\"c",
            "a:b",
            "a#b",
            "-a",
            "--a",
            "a,b]}",
            "a {{ b }}",
            "ä€",
        ],
    );
    takes(
        &["subscription value"],
        &[
            "",
            "7",
            "'a: b #c'",
            "\"yes\"",
            "'0755'",
            "'it''s #1'",
            r#""a\" #b""#,
        ],
    );
    takes(
        &["bootcmd", "runcmd"],
        &[
            "[a, -l]",
            "[a, 'yes', \"0\"]",
            "\"a: b\"",
            "a && b || c > d",
        ],
    );
}

#[test]
fn only_a_word_for_attaching_is_a_truth_value() {
    let half = |value: &str| {
        with_module(|modules| {
            let pair = ("auto-attach".to_owned(), value.to_owned());
            modules.rh_subscription.extend([pair]);
        })
    };
    for value in ["true", "false", "yes"] {
        assert!(document(half(value)).is_ok(), "{value}");
    }
    assert!(document(half("~")).is_err());
}

#[test]
fn a_reason_never_quotes_what_may_be_a_password() {
    let half = half_with("subscription value", "hunter2: x");
    let error = document(half).unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");
    assert!(
        error.contains("modules.rh_subscription.password"),
        "{error}"
    );
}

/// Parts that break YAML in the wrong place, and words around them.
const PARTS: [&str; 48] = [
    "a",
    "b",
    "key",
    "value",
    "0",
    "7",
    "yes",
    "null",
    "~",
    " ",
    "  ",
    "\t",
    "\n",
    "\r",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "'",
    "\"",
    "\\",
    ":",
    ": ",
    " #",
    "#",
    "-",
    "- ",
    "? ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "&a",
    "*a",
    "!x",
    "|",
    ">",
    "%",
    "@",
    "`",
    "=",
    "<<",
    "---",
    "\n---\n",
    "\nruncmd:\n- x",
    "\n  encoding: b64",
    "{{ a }}",
    "ä€",
];

fn a_text(random: &mut StdRng) -> String {
    let count = random.random_range(0..6);
    let part = |_| PARTS[random.random_range(0..PARTS.len())];
    (0..count).map(part).collect()
}

/// Creates a config with a random value in some of its places, and harmless ones around them.
fn a_half(random: &mut StdRng) -> ConfigHalf {
    let mut half = ConfigHalf {
        user_ssh_keys: vec!["ssh-rsa A".to_owned()],
        files: vec![a_file("/first", "first")],
        ..ConfigHalf::default()
    };
    let mut modules = CloudInitModules {
        runcmd: vec!["first".to_owned()],
        ..CloudInitModules::default()
    };
    for _ in 0..random.random_range(1..4) {
        let place = &PLACES[random.random_range(0..PLACES.len())];
        let other = place.1(&a_text(random));
        half.user_ssh_keys.extend(other.user_ssh_keys);
        half.files.extend(other.files);
        half.units.extend(other.units);
        if let Some(other) = other.modules {
            modules.bootcmd.extend(other.bootcmd);
            modules.runcmd.extend(other.runcmd);
            modules.rh_subscription.extend(other.rh_subscription);
            modules.yum_repos.extend(other.yum_repos);
            modules.yum_repo_dir = other.yum_repo_dir.or(modules.yum_repo_dir);
        }
    }
    half.files.push(a_file("/last", "last"));
    modules.runcmd.push("last".to_owned());
    half.modules = Some(modules);
    half
}

#[test]
fn thousands_of_configs_at_random_are_refused_or_read_back_as_they_were_written() {
    let mut random = StdRng::seed_from_u64(20_260_101);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..6_000 {
        let half = a_half(&mut random);
        match document(half.clone()) {
            Ok(document) => {
                check_read_back(&document, &half);
                taken += 1;
            }
            Err(error) => {
                assert_eq!(error.category(), "unsafe-value", "{error}");
                refused += 1;
            }
        }
    }
    assert!(
        taken > 1_000 && refused > 1_000,
        "{taken} taken, {refused} refused"
    );
}
