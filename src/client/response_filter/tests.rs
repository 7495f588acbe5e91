use serde_json::{Value, json};

use crate::api::names::TOO_LARGE;
use crate::client::response_filter::*;

const LIST: Shape = Shape::List(100);

/// Returns what is let through, and checks that it does not depend on how the text is split.
fn pass(shape: Shape, text: &str) -> Result<String, Refused> {
    let mut found: Vec<Result<String, Refused>> = [1, 2, 3, 7, 64, text.len().max(1)]
        .into_iter()
        .filter(|size| text.len() / size < 1 << 17)
        .map(|size| {
            let (mut filter, mut through) = (ResponseFilter::new(shape), Vec::new());
            let mut parts = text.as_bytes().chunks(size);
            parts.try_for_each(|part| filter.push(part, &mut through))?;
            Ok(String::from_utf8(through).unwrap())
        })
        .collect();
    found.dedup();
    assert!(found.len() == 1, "it depends on the parts");
    found.remove(0)
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn event(object: &Value) -> String {
    format!("{}\n", json!({"type": "ADDED", "object": object}))
}

fn a_secret(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": name, "namespace": "berlin", "uid": "u", "resourceVersion": "7",
            "labels": {"a": "b"},
            "managedFields": [{"manager": "m", "fieldsV1": {"f:data": {"\"}{\\": {}}}}],
        },
        "data": {"managedFields": "a", "metadata": "{\"}]["},
    })
}

fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
    object
}

#[test]
fn managed_fields_are_left_out_and_all_else_stays() {
    let (one, two) = (a_secret("one"), a_secret("two"));
    let passed = pass(Shape::Object, &one.to_string()).unwrap();
    assert_eq!(value(&passed), without_managed_fields(one.clone()));
    let mut list = json!({
        "kind": "SecretList",
        "metadata": {"items": [1], "resourceVersion": "9"},
        "items": [one, two],
        "more": ["items"],
    });
    let passed = pass(LIST, &list.to_string()).unwrap();
    let [one, two] = [one, two].map(without_managed_fields);
    list["items"] = json!([one, two]);
    assert_eq!(value(&passed), list);
    let lines = event(&a_secret("one")) + &event(&a_secret("two"));
    let passed = pass(Shape::Events, &lines).unwrap();
    assert_eq!(passed, event(&one) + &event(&two));
}

/// The filter refuses what it does not recognize as an object: a parser of what is let through
/// could find an object in it.
#[test]
fn an_object_that_would_not_be_seen_as_one_is_refused() {
    let object = r#"{"metadata":{"name":"a/b"}}"#;
    let as_list = r#"["v1","Secret",{"name":"a/b"}]"#;
    for (shape, text) in [
        (
            Shape::Events,
            format!("{{\"type\":\"ADDED\",\"obj\\u0065ct\":{object}}}\n"),
        ),
        (
            Shape::Events,
            format!("{{\"type\":\"ADDED\",\"object\":{as_list}}}\n"),
        ),
        (
            Shape::Events,
            format!("{{\"object\":{{\"a\":\n{{\"object\":{object}}}\n}}}}\n"),
        ),
        (
            Shape::Events,
            format!("{{\"a\":\"\n{{\"object\":{object}}}\n\"}}\n"),
        ),
        (
            Shape::Events,
            format!("{{\"a\":{{\n{{\"object\":{object}}}\n}}}}\n"),
        ),
        (Shape::Events, "{\"object\":{}{}}\n".to_owned()),
        (Shape::Object, "{}{}".to_owned()),
        (LIST, format!("{{\"it\\u0065ms\":[{object}]}}")),
        (LIST, format!("{{\"items\":[{as_list}]}}")),
        (LIST, format!("{{\"items\":[7,{object}]}}")),
    ] {
        assert_eq!(pass(shape, &text), Err(Refused::Json), "{text}");
    }
}

#[test]
fn of_what_is_too_large_the_name_stays() {
    let mut long = a_secret("one");
    long["data"] = json!({"a": "b".repeat(OBJECT_MIB_MAX << 20)});
    let mut heavy = a_secret("one");
    heavy["metadata"]["finalizers"] = json!(["ours"]);
    heavy["metadata"]["ownerReferences"] = vec![json!({}); 4_000].into();
    for object in [long, heavy] {
        let text = object.to_string();
        let passed = value(&pass(LIST, &json!({"items": [object]}).to_string()).unwrap());
        let mut name = passed["items"][0].clone();
        let annotations = name["metadata"]["annotations"].take();
        let weight: usize = annotations[TOO_LARGE].as_str().unwrap().parse().unwrap();
        assert!(weight > OBJECT_MIB_MAX << 20);
        name["metadata"]
            .as_object_mut()
            .unwrap()
            .shift_remove("annotations");
        let identity = ["name", "namespace", "uid", "resourceVersion", "finalizers"];
        for key in identity {
            assert_eq!(name["metadata"][key], object["metadata"][key]);
        }
        assert_eq!(name["kind"], "Secret");
        assert!(name.to_string().len() < 256, "{name}");
        let passed = value(&pass(Shape::Events, &event(&object)).unwrap());
        assert_eq!(passed["object"]["metadata"]["name"], "one");
        // In a request for one object, it is let through as that object.
        let passed = pass(Shape::Object, &text).unwrap();
        assert_eq!(value(&passed), without_managed_fields(object));
    }
}

/// A page that is too large is refused even though none of its objects is.
#[test]
fn a_page_weighs_no_more_than_it_may() {
    let mut object = a_secret("one");
    object["data"] = json!({"a": "b".repeat((OBJECT_MIB_MAX << 20) - 5_000)});
    let page = |count| json!({"items": vec![object.clone(); count]}).to_string();
    let documents = PAGE_MIB_MAX / OBJECT_MIB_MAX;
    assert!(pass(LIST, &page(documents)).is_ok());
    assert_eq!(pass(LIST, &page(documents + 1)).err(), Some(Refused::Page));
    let error: tower::BoxError = Refused::Page.into();
    assert!(is_page_too_large(&kube::Error::Service(error)));
    let error: tower::BoxError = Refused::Text.into();
    assert!(!is_page_too_large(&kube::Error::Service(error)));
}

#[test]
fn what_is_no_page_of_objects_is_refused() {
    let items = |items: Vec<Value>| json!({"items": items}).to_string();
    assert_eq!(
        pass(LIST, &items(vec![json!({}); 101])),
        Err(Refused::Objects)
    );
    assert!(pass(LIST, &items(vec![json!({}); 100])).is_ok());
    let kind = json!({"kind": "a".repeat(AROUND_KIB_MAX << 10)}).to_string();
    assert_eq!(pass(LIST, &kind).err(), Some(Refused::Around));
    let word = json!({"type": "a".repeat(AROUND_KIB_MAX << 10)}).to_string();
    assert_eq!(pass(Shape::Events, &word).err(), Some(Refused::Around));
    let spaces = " ".repeat((AROUND_KIB_MAX << 10) + 1);
    assert_eq!(pass(Shape::Object, &spaces).err(), Some(Refused::Around));
    let endless = format!("{{\"a\": \"{}", "a".repeat(TEXT_BYTES_MAX));
    assert_eq!(pass(Shape::Object, &endless).err(), Some(Refused::Text));
    let heavy = json!({"a": vec![json!({}); 20_000]}).to_string();
    assert_eq!(pass(Shape::Object, &heavy).err(), Some(Refused::Object));
    assert_eq!(pass(Shape::Object, "{\"a\" 1}").err(), Some(Refused::Json));
    assert_eq!(pass(Shape::Object, "ok"), Ok("ok".to_owned()));
}

#[test]
fn a_name_that_no_object_can_have_is_refused() {
    for name in ["x?watch=1&a=", "..", "../a", "a/b", "a#b", "a%2Fb", "a b"] {
        let mut object = a_secret(name);
        let refused = Some(Refused::Name);
        assert_eq!(
            pass(LIST, &json!({"items": [object]}).to_string()).err(),
            refused
        );
        assert_eq!(pass(Shape::Events, &event(&object)).err(), refused);
        object["metadata"]["name"] = json!("a");
        object["metadata"]["namespace"] = json!(name);
        assert_eq!(pass(Shape::Object, &object.to_string()).err(), refused);
    }
    // If a name occurs twice, a parser may use either, so both are checked.
    for text in [
        r#"{"metadata": {"name": "a/b"}, "metadata": {"name": "a"}}"#,
        r#"{"metadata": {"name": "a", "name": "a/b"}}"#,
        r#"{"metadata": {"n\u0061me": "a/b"}}"#,
    ] {
        assert_eq!(
            pass(Shape::Object, text).err(),
            Some(Refused::Name),
            "{text}"
        );
    }
    assert!(pass(Shape::Object, r#"{"metadata": {"name": null}}"#).is_ok());
}

#[test]
fn what_is_kept_of_every_object_is_as_short_as_api_servers_make_it() {
    for key in object::KEPT {
        let with = |length| {
            let mut object = a_secret("one");
            object["metadata"][key] = json!("a".repeat(length));
            object
        };
        assert!(pass(Shape::Object, &with(253).to_string()).is_ok(), "{key}");
        let long = with(300);
        for (shape, text) in [
            (Shape::Object, long.to_string()),
            (Shape::Events, event(&long)),
            (LIST, json!({ "items": [long] }).to_string()),
        ] {
            assert_eq!(pass(shape, &text), Err(Refused::Identity), "{key}");
        }
    }
}

/// A generator of pseudorandom numbers.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, end: u64) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % end).unwrap()
    }

    fn text(&mut self) -> String {
        const PARTS: [&str; 12] = [
            "a",
            "\"",
            "\\",
            "{",
            "}",
            "[",
            "]",
            ",",
            "é",
            "\u{1}",
            "managedFields",
            "metadata",
        ];
        (0..self.below(5)).map(|_| PARTS[self.below(12)]).collect()
    }

    fn value(&mut self, depth: u64) -> Value {
        match self.below(if depth == 0 { 4 } else { 6 }) {
            0 => json!(null),
            1 => json!(self.below(1_000)),
            2 | 3 => self.text().into(),
            4 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let fields = (0..self.below(4)).map(|_| (self.key(), self.value(depth - 1)));
                Value::Object(fields.collect())
            }
        }
    }

    fn key(&mut self) -> String {
        const KEYS: [&str; 5] = ["metadata", "managedFields", "items", "object", "kind"];
        match self.below(3) {
            0 => self.text(),
            _ => KEYS[self.below(5)].to_owned(),
        }
    }

    fn object(&mut self) -> Value {
        let mut object = serde_json::Map::new();
        for _ in 0..self.below(5) {
            let key = self.key();
            let value = match &*key {
                "metadata" => Value::Object((0..3).map(|_| (self.key(), self.value(3))).collect()),
                _ => self.value(4),
            };
            object.insert(key, value);
        }
        Value::Object(object)
    }
}

#[test]
fn whatever_is_small_passes_without_its_managed_fields() {
    let mut drawn = Drawn(7);
    for _ in 0..5_000 {
        let (object, other) = (drawn.object(), drawn.object());
        let text = match drawn.below(2) {
            0 => object.to_string(),
            _ => serde_json::to_string_pretty(&object).unwrap(),
        };
        let expected = without_managed_fields(object.clone());
        assert_eq!(
            value(&pass(Shape::Object, &text).unwrap()),
            expected,
            "{text}"
        );
        let metadata = json!({"object": [{"metadata": drawn.below(9)}], "items": ["b"]});
        let mut list = json!({"a": [[]], "metadata": metadata, "items": [object, other]});
        let passed = pass(LIST, &list.to_string()).unwrap();
        list["items"][0] = expected.clone();
        list["items"][1] = without_managed_fields(other);
        assert_eq!(value(&passed), list);
        let line = json!({"a": "object", "object": object, "b": {"c": drawn.below(9)}});
        let passed = pass(Shape::Events, &format!("{line}\n{line}\n")).unwrap();
        for line in passed.lines() {
            assert_eq!(value(line)["object"], expected);
        }
    }
}
