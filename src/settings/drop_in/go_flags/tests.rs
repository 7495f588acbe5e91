use super::*;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Few {
    switch: bool,
    number: i64,
    text: String,
    list: Vec<String>,
}

impl Default for Few {
    fn default() -> Self {
        Self {
            switch: false,
            number: 10,
            text: "a \"b\"".to_owned(),
            list: Vec::new(),
        }
    }
}

const FEW: &[Flag<Few>] = &[
    Flag {
        name: "text",
        usage: "A text.",
        place: Place::Text(|few| &mut few.text),
    },
    Flag {
        name: "switch",
        usage: "A switch.",
        place: Place::Switch(|few| &mut few.switch),
    },
    Flag {
        name: "number",
        usage: "A number.",
        place: Place::Number(|few| &mut few.number),
    },
    Flag {
        name: "list",
        usage: "A list.",
        place: Place::Func(
            |few, value| {
                if value.contains('!') {
                    return Err("too loud".to_owned());
                }
                few.list.push(value.to_owned());
                Ok(())
            },
            "",
        ),
    },
];

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

fn few(line: &[&str]) -> Result<Read<Few>, Stop> {
    read("few", FEW, &words(line))
}

#[test]
fn a_flag_has_one_or_two_dashes_and_its_value_behind_it() {
    for line in [
        &["-text", "x", "-number", "7", "-switch"][..],
        &["--text=x", "--number=7", "--switch"],
        &["-text=y", "-text=x", "-number=0x7", "-switch=T"],
        &["-switch=1", "-text", "x", "-number", "+7"],
    ] {
        let read = few(line).unwrap();
        let flags = (
            read.flags.switch,
            read.flags.number,
            read.flags.text.as_str(),
        );
        assert_eq!(flags, (true, 7, "x"), "{line:?}");
        assert_eq!(read.ignored, [""; 0], "{line:?}");
    }
    let read = few(&["-text", "-x", "-list=a=b", "-list", "", "-text="]).unwrap();
    assert_eq!(
        read.flags.text, "",
        "the last one holds, and may begin with a dash"
    );
    assert_eq!(read.flags.list, ["a=b", ""]);
}

#[test]
fn flags_end_at_the_first_word_that_is_none() {
    for (line, ignored) in [
        (&["-switch", "false", "-number=7"][..], 2),
        (&["-switch", "-", "-number=7"], 2),
        (&["-switch", "", "-number=7"], 2),
        (&["-switch", "--", "-number=7"], 1),
        (&["-switch", "--"], 0),
        (&["-switch"], 0),
    ] {
        let read = few(line).unwrap();
        assert!(read.flags.switch && read.flags.number == 10, "{line:?}");
        assert_eq!(read.ignored.len(), ignored, "{line:?}");
    }
}

#[test]
fn what_is_wrong_is_reported_as_in_go() {
    for (line, reported) in [
        (&["-nothing"][..], "flag provided but not defined: -nothing"),
        (&["--nothing=1"], "flag provided but not defined: -nothing"),
        (&["-text"], "flag needs an argument: -text"),
        (&["---text"], "bad flag syntax: ---text"),
        (&["-=x"], "bad flag syntax: -=x"),
        (&["--=x"], "bad flag syntax: --=x"),
        (
            &["-number", "many"],
            r#"invalid value "many" for flag -number: parse error"#,
        ),
        (
            &["-number="],
            r#"invalid value "" for flag -number: parse error"#,
        ),
        (
            &["-number=9223372036854775808"],
            r#"invalid value "9223372036854775808" for flag -number: value out of range"#,
        ),
        (
            &["-switch=yes"],
            r#"invalid boolean value "yes" for -switch: parse error"#,
        ),
        (
            &["-switch="],
            r#"invalid boolean value "" for -switch: parse error"#,
        ),
        (
            &["-list=a!"],
            r#"invalid value "a!" for flag -list: too loud"#,
        ),
    ] {
        let stop = few(line).unwrap_err();
        assert_eq!(stop.code, 2, "{line:?}");
        assert_eq!(stop.text, format!("{reported}\n{}", usage("few", FEW)));
    }
}

#[test]
fn help_is_the_usage_and_no_failure() {
    let reported = "Usage of few:\n  -list value\n    \tA list.\n  -number int\n    \tA number. \
                (default 10)\n  -switch\n    \tA switch.\n  -text string\n    \tA text. (default \
                \"a \\\"b\\\"\")\n";
    for line in [&["-h"][..], &["-switch", "--help"], &["-help", "-nothing"]] {
        let stop = few(line).unwrap_err();
        assert_eq!((stop.code, stop.text.as_str()), (0, reported), "{line:?}");
    }
}

#[test]
fn numbers_have_the_forms_of_go() {
    for (text, number) in [
        ("0", Ok(0)),
        ("-0", Ok(0)),
        ("010", Ok(8)),
        ("0o10", Ok(8)),
        ("0X1f", Ok(31)),
        ("0b101", Ok(5)),
        ("0x1_0", Ok(16)),
        ("0_7", Ok(7)),
        ("-12", Ok(-12)),
        ("9223372036854775807", Ok(i64::MAX)),
        ("-9223372036854775808", Ok(i64::MIN)),
        ("1_000", Ok(1000)),
        ("_1", Err("parse error")),
        ("1_", Err("parse error")),
        ("08", Err("parse error")),
        ("0x", Err("parse error")),
        ("0x1__0", Err("parse error")),
        ("--1", Err("parse error")),
        (" 1", Err("parse error")),
        ("1e3", Err("parse error")),
        ("-9223372036854775809", Err("value out of range")),
    ] {
        assert_eq!(parse_int(text), number, "{text}");
    }
}
