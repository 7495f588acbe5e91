//! The scenarios: what is done to the fleet in which order, and which figures come of it.

mod busy;
mod fleet_wide;
mod hostile;
mod kkp;
mod making;
mod side_by_side;
mod siege;

use clap::ValueEnum;
use futures::future::LocalBoxFuture;

use self::busy::Failure;
use super::outcome::Outcome;
use super::stage::{Params, Stage};
use crate::demo::cluster::Kind;

/// What is done to the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// A fleet that is served, and then left alone.
    Idle,
    /// The manager starts in a fleet that is registered and has never been served.
    ColdStart,
    /// The manager starts in a fleet where everything is current.
    Restart,
    /// Tenants join a served fleet, and machine deployments appear.
    Steady,
    /// The revision of every machine deployment is raised at once.
    Storm,
    /// One tenant's machine deployments change a hundred times as often as the others'.
    Noisy,
    /// A tenth of the tenants have profiles that burn their limits, over and over.
    Hostile,
    /// Three replicas serve ordinary tenants beside clusters that attack them.
    Siege,
    /// Each tenth worker cluster is dead.
    Dead,
    /// Each tenth worker cluster is slow.
    Slow,
    /// Each tenth worker cluster answers 429.
    Busy,
    /// One process for each worker cluster, and then one for all.
    SideBySide,
    /// A KKP seed, whose user clusters nobody registers.
    Kkp,
}

impl Scenario {
    /// What it does, in one line: what stands above it here.
    pub fn about(self) -> String {
        let value = self.to_possible_value();
        let help = value.as_ref().and_then(|value| value.get_help());
        help.map(ToString::to_string).unwrap_or_default()
    }

    /// Whether it asks nothing of the management cluster that only one in memory can tell.
    fn takes_a_real_management_cluster(self) -> bool {
        matches!(
            self,
            Self::Idle
                | Self::ColdStart
                | Self::Restart
                | Self::Steady
                | Self::Storm
                | Self::Noisy
                | Self::Dead
                | Self::Slow
                | Self::Busy
        )
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Runs it from nothing to its end.
    pub async fn run(self, params: Params) -> anyhow::Result<Outcome> {
        anyhow::ensure!(
            params.management == Kind::Fake || self.takes_a_real_management_cluster(),
            "{} looks into a management cluster in memory",
            self.name()
        );
        let mut outcome = Outcome::new(&self.name(), &params);
        let mut stage = Box::pin(Stage::new(params)).await?;
        let played = self.play(&mut stage, &mut outcome).await;
        let stopped = stage.stop().await;
        played.and(stopped).map(|()| outcome)
    }

    fn play<'a>(
        self,
        stage: &'a mut Stage,
        outcome: &'a mut Outcome,
    ) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        match self {
            Self::Idle => Box::pin(fleet_wide::idle(stage, outcome)),
            Self::ColdStart => Box::pin(fleet_wide::cold_start(stage, outcome)),
            Self::Restart => Box::pin(fleet_wide::restart(stage, outcome)),
            Self::Steady => Box::pin(busy::steady(stage, outcome)),
            Self::Storm => Box::pin(busy::storm(stage, outcome)),
            Self::Noisy => Box::pin(busy::noisy(stage, outcome)),
            Self::Hostile => Box::pin(hostile::hostile(stage, outcome)),
            Self::Siege => Box::pin(siege::siege(stage, outcome)),
            Self::Dead => Box::pin(busy::failing(stage, outcome, Failure::Dead)),
            Self::Slow => Box::pin(busy::failing(stage, outcome, Failure::Slow)),
            Self::Busy => Box::pin(busy::failing(stage, outcome, Failure::Busy)),
            Self::SideBySide => Box::pin(side_by_side::side_by_side(stage, outcome)),
            Self::Kkp => Box::pin(kkp::kkp(stage, outcome)),
        }
    }
}
