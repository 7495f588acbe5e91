//! Waits until the user clusters of a wave have changed hands.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, bail};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use tokio::time::{Instant, sleep};

use super::{Direction, HandOver, seed::Seed};
use crate::api::{condition::ConditionType, reason::Reason};
use crate::commands::readiness::{Readiness, readiness, said};
use crate::fleet::discovery::kkp::{DEPLOYMENT, namespace_of};

/// The interval between two checks.
const INTERVAL: Duration = Duration::from_millis(500);

/// How far a user cluster is.
enum Progress {
    /// It has changed hands.
    Done(String),
    /// It has not, for this reason.
    Waiting(String),
}

impl Seed {
    /// Waits until these user clusters have changed hands.
    ///
    /// # Errors
    ///
    /// A call fails, or one has not changed hands in time.
    pub(super) async fn wait(
        &self,
        ids: Vec<String>,
        hand_over: &HandOver,
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + hand_over.patience;
        let mut waiting: BTreeMap<String, String> =
            ids.into_iter().map(|id| (id, String::new())).collect();
        loop {
            for id in waiting.keys().cloned().collect::<Vec<_>>() {
                let reached = match hand_over.direction {
                    Direction::ToUs => self.is_served(&id).await?,
                    Direction::Back => self.is_given_back(&id).await?,
                };
                match reached {
                    Progress::Done(text) => {
                        waiting.remove(&id);
                        progress(format!("{id}: {text}"));
                    }
                    Progress::Waiting(why) if waiting.get(&id) != Some(&why) => {
                        progress(format!("{id}: waiting: {why}"));
                        waiting.insert(id, why);
                    }
                    Progress::Waiting(_) => {}
                }
            }
            let Some((id, why)) = waiting.first_key_value() else {
                return Ok(());
            };
            if Instant::now() >= deadline {
                let seconds = hand_over.patience.as_secs();
                match hand_over.direction {
                    Direction::ToUs => bail!(
                        "{id} is not served after {seconds} s: {why}. No other cluster is handed \
                         over; osm adopt kkp --back --cluster {id} gives it back"
                    ),
                    Direction::Back => {
                        bail!("{id} is not given back after {seconds} s: {why}")
                    }
                }
            }
            sleep(INTERVAL).await;
        }
    }

    async fn is_served(&self, id: &str) -> anyhow::Result<Progress> {
        let Some(own) = self.own(id).await? else {
            return Ok(Progress::Waiting(
                "no manager has created its WorkerCluster; does one run with --inventory=kkp?"
                    .to_owned(),
            ));
        };
        Ok(match readiness(&own) {
            Readiness::Ready(text) => Progress::Done(format!("served, {text}")),
            Readiness::InPart(_) => Progress::Done(format!("served in part: {}", said(&own))),
            Readiness::Not => Progress::Waiting(said(&own)),
        })
    }

    async fn is_given_back(&self, id: &str) -> anyhow::Result<Progress> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &namespace_of(id));
        let found = api.get_opt(DEPLOYMENT).await;
        let found = found.with_context(|| format!("cannot read the Deployment of {id}"))?;
        let replicas = found.map_or(0, |it| it.spec.replicas.unwrap_or(1));
        if replicas == 0 {
            let why = "KKP has not scaled its manager up yet".to_owned();
            return Ok(Progress::Waiting(why));
        }
        let own = self.own(id).await?;
        let registered = own
            .as_ref()
            .map(|it| it.condition(ConditionType::Registered));
        let is_left = match registered {
            None => true,
            Some(it) => it.is_some_and(|it| it.reason == Reason::RegistrationRemoved),
        };
        Ok(if is_left {
            Progress::Done("given back to KKP's manager".to_owned())
        } else {
            Progress::Waiting("the manager of the seed has not left it yet".to_owned())
        })
    }
}
