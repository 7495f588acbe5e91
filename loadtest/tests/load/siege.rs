//! Ordinary tenants beside a tenant that attacks, in each way that `loadtest run siege` knows.
//! Counts and bytes, never times.

use std::{path::Path, time::Duration};

use loadtest::demo::screen::Screen;
use loadtest::load::{scenario::Scenario, stage::Params};

/// How long each wave of attacks goes on.
const WINDOW: Duration = Duration::from_secs(15);
/// The limit of the manifests, in bytes.
const MEMORY_LIMIT: usize = 512 << 20;
/// A new attack must be added here on purpose.
const ATTACKS: f64 = 20.0;

/// No replica ends, no replica takes more memory than it may with its render workers, ordinary
/// tenants are served during every attack, the attacker's conditions name each cause, and all
/// attackers are served when they behave again. `siege` fails if one of the others does not hold.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_survive_every_attack_and_name_its_cause() {
    let binary = Path::new(env!("CARGO_BIN_EXE_loadtest"));
    let params = Params {
        window: WINDOW,
        // A busy machine must not make failures.
        arguments: vec![
            format!("--memory-limit={MEMORY_LIMIT}"),
            "--request-timeout=30s".to_owned(),
            "--lease-duration=40s".to_owned(),
        ],
        ..Params::in_memory(binary.with_file_name("osm"), 20)
    };
    let outcome = Scenario::Siege.run(params).await;
    let outcome = outcome.expect("the replicas survive");
    outcome.print(Screen::of_this_process());
    let attacks = outcome.figure("attacks").map(|it| it.value);
    assert_eq!(attacks, Some(ATTACKS));
    for figure in outcome.figures.iter().filter(|it| it.unit == "MiB") {
        assert!(
            figure.must.is_some_and(|must| figure.value <= must),
            "{figure:?}"
        );
    }
}
