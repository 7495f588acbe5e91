//! Holds the attributes of spans to the names that OpenTelemetry publishes.

use std::collections::BTreeSet;

use opentelemetry_semantic_conventions::attribute as published;

use crate::architecture::source;

/// The published names that spans use.
const PUBLISHED: [&str; 11] = [
    published::ERROR_TYPE,
    published::HTTP_REQUEST_METHOD,
    published::HTTP_RESPONSE_STATUS_CODE,
    published::HTTP_ROUTE,
    published::K8S_CLUSTER_NAME,
    published::K8S_CLUSTER_UID,
    published::K8S_NAMESPACE_NAME,
    published::SERVER_ADDRESS,
    published::SERVER_PORT,
    published::URL_PATH,
    published::URL_TEMPLATE,
];

/// Names of our own, and those that tell tracing-opentelemetry what to do.
const OTHERS: [&str; 2] = ["osm.", "otel."];

/// The attributes with a namespace in the spans of a file.
fn attributes(text: &str) -> BTreeSet<String> {
    let spans = text.split("_span!(").skip(1);
    let fields = spans.flat_map(|span| span.split(");").next().unwrap_or_default().lines());
    let names = fields.filter_map(|line| line.split_once(" = "));
    let names = names.map(|(name, _)| name.rsplit([' ', '(', ',']).next().unwrap_or_default());
    let names = names.filter(|name| name.contains('.') && !name.contains('"'));
    names.map(str::to_owned).collect()
}

#[test]
fn attributes_of_spans_have_published_names_or_our_own() {
    let files = source::all("src", "rs");
    let used: BTreeSet<String> = files
        .iter()
        .flat_map(|(_, text)| attributes(text))
        .collect();
    let is_other = |name: &&String| OTHERS.iter().any(|prefix| name.starts_with(prefix));
    let used = used.iter().filter(|name| !is_other(name));
    let used: BTreeSet<&str> = used.map(String::as_str).collect();
    assert_eq!(used, PUBLISHED.into());
}

#[test]
fn an_attribute_is_found_in_a_span_of_one_line_and_of_many() {
    let text =
        "span = info_span!(\"a\", b.c = 1);\n x.y = 2;\n_span!(\n    d.e = Empty,\n    f = 1,\n);";
    let found: Vec<String> = attributes(text).into_iter().collect();
    assert_eq!(found, ["b.c", "d.e"]);
}
