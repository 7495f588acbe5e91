//! What a reason means and what to do about it: the rows of the page of reasons itself, so that a
//! command and the page cannot say different things.

/// The page with the tables of reasons.
const PAGE: &str = include_str!("../../docs/reasons.md");

/// What a reason asks people to do; nothing where it asks for nothing.
pub fn remediation(reason: &str) -> Option<String> {
    let word = format!("`{reason}`");
    PAGE.lines()
        .filter(|line| line.starts_with('|'))
        .filter_map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let place = cells.iter().take(2).position(|cell| *cell == word)?;
            // A state may stand between an entry's reason and its meaning.
            let what = cells.get(place + 1..)?.last()?;
            (cells.len() == 4).then(|| plain(what))
        })
        .find(|what| !what.is_empty())
}

/// Without the marks of Markdown: a link is its text.
fn plain(cell: &str) -> String {
    let mut text = String::new();
    let mut rest = cell;
    while let Some((before, link)) = rest.split_once("](") {
        text.push_str(before);
        rest = link.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text.replace(['`', '['], "").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_answered_as_the_page_answers_it() {
        let said = remediation("UpstreamRunning").unwrap();
        assert_eq!(said, "Scale it to zero. Retried.");
        let said = remediation("UserDataTooLarge").unwrap();
        assert!(said.ends_with("see user-data-sizes.md."), "{said}");
        let said = remediation("KubeconfigRefused").unwrap();
        assert_eq!(said, "Write what the message says.");
        assert_eq!(remediation("Accepted"), None);
        assert_eq!(remediation("NoSuchReason"), None);
    }
}
