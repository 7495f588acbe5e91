//! What the page of symptoms quotes from the console of a machine is what the scripts print.

use std::fs;

use super::{between, files, page, root, rows};

/// What other programs print: curl, apt, the kernel.
const OF_OTHERS: [&str; 7] = [
    "Could not resolve host",
    "Failed to connect",
    "certificate is not yet valid",
    "401",
    "404",
    "No space left on device",
    "not have enough free space",
];

#[test]
fn what_the_page_quotes_from_a_console_is_what_the_scripts_print() {
    let macros = root().join("manifests/profiles/src/macros");
    let sources: Vec<String> = files(&macros, "jinja")
        .iter()
        .map(|path| fs::read_to_string(path).expect("a macro is text"))
        .collect();
    let sources = sources.concat();
    let page = page("troubleshoot.md");
    let mut quoted = 0;
    for row in rows(&page, "A machine does not join") {
        let cell = row.first().copied().unwrap_or_default();
        for text in between(cell, '`').filter(|text| !OF_OTHERS.contains(text)) {
            // Setup names its stages once, and adds the words around them.
            let text = text.trim_end_matches(" …").trim_end_matches('…');
            let stage = text
                .strip_prefix("setup: failed while ")
                .or_else(|| text.strip_prefix("setup: "));
            let printed = stage.map_or_else(|| text.to_owned(), |it| format!("stage \"{it}"));
            let printed = printed.replace("cloud-config of Secret", "$2 of Secret");
            assert!(sources.contains(&printed), "no script prints `{text}`");
            quoted += 1;
        }
    }
    assert!(quoted > 5, "{quoted} texts are quoted");
}
