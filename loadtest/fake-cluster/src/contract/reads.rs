//! How reads behave: pages, selectors, watches, metadata alone.

use futures::{StreamExt, TryStreamExt};
use http::{HeaderValue, header::ACCEPT};
use kube::{
    Client, ResourceExt,
    api::{Api, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams},
    core::Request,
};
use serde_json::{Value, json};

use super::{code_of, created, deleted, map, maps, version};

async fn some_maps(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let maps = maps(client, namespace);
    for (name, group) in [("a", "one"), ("b", "two"), ("c", "one")] {
        let mut map = map(name, &json!({}));
        map.labels_mut()
            .insert("group".to_owned(), group.to_owned());
        created(&maps, &map).await;
    }
    maps
}

fn names(list: &[DynamicObject]) -> Vec<&str> {
    list.iter()
        .filter_map(|object| object.metadata.name.as_deref())
        .collect()
}

/// Every answer says when it was sent, by the clock that decides what has expired.
pub async fn an_answer_says_when_it_was_sent(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let made = created(&maps, &map("a", &json!({}))).await;
    let made = made.metadata.creation_timestamp;
    let made = made.expect("a server says when").0;
    let request = http::Request::get(format!("/api/v1/namespaces/{namespace}/configmaps/a"));
    let request = request.body(kube::client::Body::empty());
    let request = request.expect("the request is well-formed");
    let answer = client.send(request).await.expect("it is there");
    let date = answer.headers()[http::header::DATE].to_str();
    let date = jiff::fmt::rfc2822::parse(date.expect("it is text"));
    let date = date.expect("it is a date").timestamp();
    let age = date.duration_since(made).as_secs();
    assert!((0..60).contains(&age), "{age} s");
}

/// Pages follow each other in one version, whatever happens between them.
pub async fn a_list_comes_in_pages(client: &Client, namespace: &str) {
    let maps = some_maps(client, namespace).await;
    let params = ListParams::default().limit(1).labels("group");
    let first = maps.list(&params).await.expect("the first page");
    assert_eq!(names(&first.items), ["a"]);
    deleted(&maps, "c").await;
    let next = first.metadata.continue_.as_deref().expect("there is more");
    let second = maps
        .list(&params.clone().limit(5).continue_token(next))
        .await
        .expect("the rest");
    assert_eq!(
        names(&second.items),
        ["b", "c"],
        "a page shows the version of the first one"
    );
    let (first, second) = (first.metadata, second.metadata);
    assert_eq!(first.resource_version, second.resource_version);
    assert_eq!(second.continue_.unwrap_or_default(), "");
}

/// Labels and names select exactly.
pub async fn a_selected_list_is_exact(client: &Client, namespace: &str) {
    let maps = some_maps(client, namespace).await;
    for (labels, expected) in [
        ("group=one", vec!["a", "c"]),
        ("group!=one,group", vec!["b"]),
        ("group in (one,two)", vec!["a", "b", "c"]),
        ("group notin (one),group", vec!["b"]),
    ] {
        let found = maps.list(&ListParams::default().labels(labels)).await;
        assert_eq!(names(&found.expect("a list").items), expected, "{labels}");
    }
    let by_name = ListParams::default().fields("metadata.name=b");
    let found = maps.list(&by_name).await.expect("a list");
    assert_eq!(names(&found.items), ["b"]);
    let unknown = ListParams::default().fields("data.x=b");
    let refused = super::refusal(maps.list(&unknown).await);
    assert_eq!(code_of(&refused), (400, "BadRequest"));
}

/// A watch from a version sees every later change once, and nothing before.
pub async fn a_watch_resumes_where_it_was(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let start = created(&maps, &map("a", &json!({ "k": "1" }))).await;
    let mut second = start.clone();
    second.data = json!({ "data": { "k": "2" } });
    maps.replace("a", &PostParams::default(), &second)
        .await
        .expect("replaced");
    deleted(&maps, "a").await;
    created(&maps, &map("b", &json!({}))).await;
    // A real server publishes its certificate authority into every namespace, at a time of its own.
    let params = WatchParams::default()
        .timeout(10)
        .fields("metadata.name!=kube-root-ca.crt");
    let stream = maps
        .watch(&params, &version(&start))
        .await
        .expect("a watch");
    let events: Vec<String> = stream
        .take(3)
        .map_ok(|event| match event {
            WatchEvent::Added(object) => format!("added {}", names(&[object]).concat()),
            WatchEvent::Modified(object) => format!("modified {}", names(&[object]).concat()),
            WatchEvent::Deleted(object) => format!("deleted {}", names(&[object]).concat()),
            other => format!("{other:?}"),
        })
        .try_collect()
        .await
        .expect("events");
    assert_eq!(events, ["modified a", "deleted a", "added b"]);
}

/// A watch that asks for the first state gets it, and then a bookmark that says so.
pub async fn a_watch_sends_the_first_state_and_marks_its_end(client: &Client, namespace: &str) {
    let maps = some_maps(client, namespace).await;
    let params = WatchParams::default()
        .timeout(10)
        .labels("group=one")
        .initial_events();
    let stream = maps.watch(&params, "0").await.expect("a watch");
    let events: Vec<WatchEvent<DynamicObject>> =
        stream.take(3).try_collect().await.expect("events");
    let added: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            WatchEvent::Added(object) => object.metadata.name.as_deref(),
            _ => None,
        })
        .collect();
    assert_eq!(added, ["a", "c"]);
    let marked = events.iter().any(|event| match event {
        WatchEvent::Bookmark(mark) => mark
            .metadata
            .annotations
            .contains_key("k8s.io/initial-events-end"),
        _ => false,
    });
    assert!(marked, "{events:?}");
}

/// Metadata can be had alone, one by one and in lists.
pub async fn only_metadata_is_sent_when_asked(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let secret = map("a", &json!({ "k": "a long text" }));
    let made = created(&maps, &secret).await;
    let one = maps.get_metadata("a").await.expect("metadata");
    assert_eq!(one.resource_version(), made.resource_version());
    let types = one.types.expect("it says what it is");
    assert_eq!(types.kind, "PartialObjectMetadata");
    let only_it = ListParams::default().fields("metadata.name=a");
    let list = maps.list_metadata(&only_it).await.expect("a list");
    let names: Vec<_> = list.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["a"]);
    let bytes = serde_json::to_vec(&map("b", &json!({ "k": "a long text" }))).expect("JSON");
    let mut create = Request::new(maps.resource_url())
        .create(&PostParams::default(), bytes)
        .expect("a request");
    let form = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";
    let form = HeaderValue::from_static(form);
    create.headers_mut().insert(ACCEPT, form);
    let created: Value = client.request(create).await.expect("created");
    let text = |pointer| created.pointer(pointer).and_then(Value::as_str);
    assert_eq!(text("/kind"), Some("PartialObjectMetadata"));
    assert_eq!(text("/metadata/name"), Some("b"));
    assert_eq!(created.get("data"), None);
}
