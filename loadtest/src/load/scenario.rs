//! The scenarios: what is done to the fleet in which order, and which figures come of it.

mod fleet_wide;

use clap::ValueEnum;
use futures::future::BoxFuture;

use super::outcome::Outcome;
use super::stage::{Params, Stage};

/// What is done to the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// A fleet that is served, and then left alone.
    Idle,
    /// The manager starts in a fleet that is registered and has never been served.
    ColdStart,
    /// The manager starts in a fleet where everything is current.
    Restart,
}

impl Scenario {
    /// What it does, in one line.
    pub fn about(self) -> &'static str {
        match self {
            Self::Idle => "a served fleet is left alone: memory, CPU and requests per tenant",
            Self::ColdStart => "the manager starts in a registered fleet that was never served",
            Self::Restart => "the manager starts in a fleet where everything is current",
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Runs it from nothing to its end.
    pub async fn run(self, params: Params) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::new(&self.name(), &params);
        let mut stage = Stage::new(params).await?;
        let played = self.play(&mut stage, &mut outcome).await;
        let stopped = stage.stop().await;
        played.and(stopped).map(|()| outcome)
    }

    fn play<'a>(
        self,
        stage: &'a mut Stage,
        outcome: &'a mut Outcome,
    ) -> BoxFuture<'a, anyhow::Result<()>> {
        match self {
            Self::Idle => Box::pin(fleet_wide::idle(stage, outcome)),
            Self::ColdStart => Box::pin(fleet_wide::cold_start(stage, outcome)),
            Self::Restart => Box::pin(fleet_wide::restart(stage, outcome)),
        }
    }
}
