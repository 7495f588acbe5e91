//! One world from its beginning to its end: the history, and then quiet, in which all must come to
//! what it would be if nothing had gone wrong.

use std::time::Duration;

use osm::client::{
    jitter,
    watch::{RELIST, RELIST_PROFILES},
};

use crate::{
    history::{History, Step},
    invariants::{Held, histories, requests},
    links::all_can_join,
    model::Model,
    snapshot,
};

/// Several times longer than any delay between two attempts. One of many tenants always reads its
/// cluster info or renews a token, so only the time shows that the world has settled.
const SETTLED: Duration = Duration::from_mins(5);

/// Prints the history where a world ends by a panic.
struct Told<'a>(&'a History);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

/// Runs the world of a number.
pub fn run(seed: u64) -> Held {
    let history = History::draw(seed);
    let _told = Told(&history);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    jitter::begin(seed);
    let held = runtime.block_on(live(&history));
    held.map_err(|problem| format!("{problem}\n{history}"))
}

async fn live(history: &History) -> Held {
    let mut model = Model::new(history);
    model.start();
    for (index, (after, step)) in history.steps.iter().enumerate() {
        tokio::time::sleep(*after).await;
        model.revive().await;
        if matches!(step, Step::Restore(..)) {
            // What is undone must have been right, too.
            histories(&model).map_err(|problem| format!("before step {index}: {problem}"))?;
        }
        model.happen(*step).await;
        requests(&mut model).map_err(|problem| format!("step {index}: {problem}"))?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    model.revive().await;
    model.mend().await;
    model.unpause();
    // Longer than until every watch has started over.
    let slowest = if history.loses_profiles() {
        RELIST_PROFILES
    } else {
        RELIST
    };
    model.pass(slowest * 4 / 3 + Duration::from_mins(2)).await;
    model.confirm_settings();
    model.pass(SETTLED).await;
    let left = model.let_go();
    if !left.is_empty() {
        return Err(format!("still being deleted: {left:?}"));
    }
    model.pass(SETTLED).await;
    requests(&mut model)?;
    histories(&model)?;
    all_can_join(&model).await?;
    rest(&mut model).await?;
    all_can_join(&model).await?;
    model.stop().await;
    let found = snapshot::take(&model.world);
    let mut undisturbed = model.undisturbed();
    tokio::time::sleep(SETTLED).await;
    undisturbed.stop().await;
    let wanted = snapshot::take(&undisturbed.world);
    snapshot::difference(&wanted, &found).map_or(Ok(()), |difference| {
        Err(format!("not as undisturbed: {difference}"))
    })
}

/// Where nothing changes nothing is written, by this process and by the next, but renewals.
async fn rest(model: &mut Model) -> Held {
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_mins(40)).await;
        let writes = model.life.writes();
        let is_renewal = |line: &str| line.starts_with("PUT secrets bootstrap-token-");
        let needless = writes.iter().find(|sent| !is_renewal(&sent.line()));
        if let Some(needless) = needless {
            return Err(format!("written at rest: {}", needless.line()));
        }
        model.stop().await;
        model.start();
    }
    Ok(())
}
