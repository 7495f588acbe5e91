//! The page of what is compatible with what: made from the machines that have joined.

use osm::render::default_profiles::default_profiles;

use super::{check_table, read, root};

/// The minor versions whose documents the programs that read them are tried with.
const MINORS: [&str; 4] = ["1.33", "1.34", "1.35", "1.36"];

/// A machine that has joined.
struct Joined<'a> {
    profile: &'a str,
    system: &'a str,
    kubelet: &'a str,
}

fn parse(line: &str) -> Option<Joined<'_>> {
    let mut cells = line.split('\t');
    Some(Joined {
        profile: cells.next()?,
        system: cells.next()?,
        kubelet: cells.next()?,
    })
}

#[test]
fn the_page_of_compatibility_is_what_has_joined() {
    let text = read(&root().join("loadtest/nodes/joined.tsv"));
    let joined: Vec<Joined<'_>> = text.lines().filter_map(parse).collect();
    let mut rows = Vec::new();
    for profile in default_profiles() {
        let of_profile = joined.iter().filter(|it| it.profile == profile.name);
        let mut systems: Vec<&str> = of_profile.map(|it| it.system).collect();
        systems.sort_unstable();
        systems.dedup();
        if systems.is_empty() {
            systems.push("");
        }
        for system in systems {
            let cell = |minor: &&str| {
                let of_minor = joined.iter().find(|it| {
                    let kubelet = it.kubelet.strip_prefix('v').unwrap_or(it.kubelet);
                    (it.profile, it.system) == (profile.name, system)
                        && kubelet.starts_with(&format!("{minor}."))
                });
                of_minor.map_or_else(
                    || "read".to_owned(),
                    |it| format!("**joined** ({})", it.kubelet),
                )
            };
            let cells: Vec<String> = MINORS.iter().map(cell).collect();
            let (name, cells) = (profile.name, cells.join(" | "));
            rows.push(format!("| `{name}` | {system} | {cells} |\n"));
        }
    }
    check_table("compatibility.md", &rows);
}
