//! Grants rollout slots: which tenants of the fleet may install newer default profiles now.
//!
//! A tenant's state in the rollout is computed from its installed profiles and from its status in
//! memory, or from its WorkerCluster's status while its cluster is not engaged here. So a restart
//! continues where it was, and all replicas come to the same decision. Without slot requests,
//! nothing runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    profile_store::ProfileStore,
    state::rollout_slots::{Decided, RolloutSlots},
};
use crate::api::{
    condition::ConditionType,
    reason::Reason,
    worker_cluster::{
        DefaultProfiles, MachineDeploymentEntry, ProfileRollout, WorkerClusterStatus,
    },
};
use crate::client::{tenant_status::TenantStatus, watch::Scope};
use crate::fleet::registry::{Place, RegisteredCluster, Registry};
use crate::plan::{
    default_profile::DefaultProfileSettings,
    default_profile::{DefaultProfile, is_older},
    rollout::{Decision, Participant, ParticipantState, decide, is_profiles_fault},
};
use crate::telemetry::metrics::{Metrics, Paused, RolloutState};
use crate::tenant::{id::TenantId, report::Outcome, settings::TenantSettings, waves::Pace};

/// How often the fleet is evaluated while there are slot requests. A wave takes much longer.
const INTERVAL: Duration = Duration::from_secs(1);
/// While other replicas serve tenants, slots are granted after no tenant's state has changed for
/// this long. By then, all replicas have read the same states.
const CALM: Duration = Duration::from_secs(3);

/// The tenants of the fleet.
#[derive(Debug)]
pub struct Tenants {
    /// The registry.
    pub registry: Arc<Registry>,
    /// The scope of registrations.
    pub scope: Scope,
    /// The default settings of tenants.
    pub settings: Arc<TenantSettings>,
}

impl Tenants {
    /// Creates a view of the tenants in the registry.
    pub fn new(registry: &Arc<Registry>, scope: &Scope, settings: &Arc<TenantSettings>) -> Self {
        Self {
            registry: Arc::clone(registry),
            scope: scope.clone(),
            settings: Arc::clone(settings),
        }
    }
}

/// Grants rollout slots.
#[derive(Debug)]
pub struct Rollout {
    /// The requests, and the decision.
    pub slots: Arc<RolloutSlots>,
    /// The tenants.
    pub tenants: Tenants,
    /// The installed profiles.
    pub profiles: Arc<ProfileStore>,
    /// The default profiles.
    pub defaults: Arc<[DefaultProfile]>,
    /// The pace of the waves.
    pub pace: Pace,
    /// The metrics.
    pub metrics: Metrics,
}

impl Rollout {
    /// Grants rollout slots until cancelled.
    pub async fn run(self) {
        let mut calm = Calm::default();
        loop {
            self.slots.notify.notified().await;
            while !self.slots.requests.lock().is_empty() {
                self.observe(&mut calm);
                tokio::time::sleep(INTERVAL).await;
            }
            self.observe(&mut calm);
        }
    }

    fn observe(&self, calm: &mut Calm) {
        let requests = self.slots.requests.lock().clone();
        let registered = self.tenants.registry.all();
        let (mut participants, mut here) = (Vec::new(), Vec::new());
        let mut is_shared = false;
        for registered in registered {
            let place = registered.place();
            is_shared |= place == Place::Elsewhere;
            let Some(participant) = self.participant(&registered, &requests) else {
                continue;
            };
            if place == Place::Here {
                here.push(participant.state);
            }
            participants.push(participant);
        }
        self.count(&here);
        let is_calm = calm.observe(&participants) || !is_shared;
        // Until every registration has been seen, the size of a wave is unknown.
        let decision = if self.tenants.registry.is_listed(&self.tenants.scope) {
            decide(&participants, &self.pace)
        } else {
            Decision::Granted(Vec::new())
        };
        let decided = match decision {
            Decision::Granted(_) if !is_calm => Decided {
                granted: self.still_requesting(&participants),
                paused: None,
            },
            Decision::Granted(granted) => Decided {
                granted: granted.into_iter().collect(),
                paused: None,
            },
            Decision::Paused { failed, tried } => Decided {
                paused: Some(format!(
                    "nobody gets newer default profiles: {failed} of {tried} machine deployments \
                     fail with them"
                )),
                ..Decided::default()
            },
        };
        self.report(&decided, &participants);
        self.slots.decided.send_if_modified(|before| {
            let news = *before != decided;
            *before = decided;
            news
        });
    }

    /// Returns the tenants that have a slot and have not used it yet.
    fn still_requesting(&self, participants: &[Participant<TenantId>]) -> BTreeSet<TenantId> {
        let before = self.slots.decided.borrow();
        let requests_slot = |it: &&Participant<TenantId>| {
            it.state.requests_slot() && before.granted.contains(&it.id)
        };
        participants
            .iter()
            .filter(requests_slot)
            .map(|it| it.id.clone())
            .collect()
    }

    /// Sets the metrics. Each replica counts its own tenants.
    fn count(&self, here: &[ParticipantState]) {
        for (state, of) in [
            (RolloutState::Settled, &[ParticipantState::Settled][..]),
            (RolloutState::Settling, &[ParticipantState::Settling]),
            (
                RolloutState::Waiting,
                &[
                    ParticipantState::Underway,
                    ParticipantState::SlotRequest,
                    ParticipantState::SlotRequestWithoutUsers,
                    ParticipantState::Away,
                ],
            ),
        ] {
            let count = here.iter().filter(|it| of.contains(it));
            self.metrics.set_rollout(state, count.count());
        }
    }

    /// Sets the metric of a pause, and logs each pause, its end, and new slots.
    fn report(&self, decided: &Decided, participants: &[Participant<TenantId>]) {
        let before = self.slots.decided.borrow();
        let paused = decided.paused.as_ref().map_or(Paused::No, |_| Paused::Yes);
        self.metrics.set_rollout_paused(paused);
        match (&before.paused, &decided.paused) {
            (None, Some(why)) => {
                let failing = participants.iter().filter(|it| it.failed > 0);
                let tenants: Vec<&str> = failing.map(|it| it.id.namespace()).take(3).collect();
                tracing::warn!(%why, ?tenants, "the rollout of default profiles is paused");
            }
            (Some(_), None) => tracing::info!("the rollout of default profiles goes on"),
            _ => {}
        }
        let new = decided.granted.difference(&before.granted).count();
        if new > 0 {
            tracing::info!(tenants = new, "tenants get newer default profiles");
        }
    }

    /// Returns the rollout state of a registered cluster's tenant. Returns `None` if its settings
    /// exclude it, or if it has the newer profiles but nothing was reconciled with them.
    fn participant(
        &self,
        registered: &RegisteredCluster,
        requests: &BTreeSet<TenantId>,
    ) -> Option<Participant<TenantId>> {
        let own = registered.worker_cluster.borrow().clone();
        let settings = DefaultProfileSettings::new(&self.tenants.settings, own.as_deref());
        let policy = own
            .as_ref()
            .map_or(DefaultProfiles::default(), |own| own.spec.default_profiles);
        if policy != DefaultProfiles::Replace || settings.pace == ProfileRollout::Manual {
            return None;
        }
        let tenant = &registered.id.tenant;
        let wanted = self.defaults.iter().filter(|it| settings.wants(&it.name));
        let (mut older, mut ours) = (0_usize, 0_usize);
        for default in wanted {
            match self.profiles.get(tenant.namespace(), &default.name) {
                Some(found) if is_older(&found.spec().version, &default.spec.version) => older += 1,
                Some(_) => ours += 1,
                None if (self.profiles).is_unreadable(tenant.namespace(), &default.name) => {
                    older += 1;
                }
                None => {}
            }
        }
        let status = own.as_ref().and_then(|own| own.status.as_ref());
        let entries = status.map_or(&[][..], |it| &it.machine_deployments);
        let (users, requests_slot) = match registered.place() {
            Place::Here => {
                let users = self.users(&registered.status, entries);
                let requests_slot = users.are_known() && requests.contains(tenant);
                (users, requests_slot)
            }
            Place::Elsewhere => {
                let reported = status.map_or(ReportedState::Away, ReportedState::from_status);
                (
                    self.users_elsewhere(entries, reported),
                    reported == ReportedState::RequestsSlot,
                )
            }
        };
        let state = match older {
            0 if users.not_reconciled + users.behind > 0 => ParticipantState::Settling,
            // Without users, the profiles prove nothing.
            0 if users.tried == 0 => return None,
            0 => ParticipantState::Settled,
            _ if !requests_slot => ParticipantState::Away,
            _ if ours > 0 => ParticipantState::Underway,
            _ if users.tried + users.behind == 0 => ParticipantState::SlotRequestWithoutUsers,
            _ => ParticipantState::SlotRequest,
        };
        Some(Participant {
            id: tenant.clone(),
            state,
            tried: users.tried,
            failed: users.failed,
        })
    }

    fn users_elsewhere(
        &self,
        entries: &[MachineDeploymentEntry],
        reported: ReportedState,
    ) -> Users {
        let mut users = Users::default();
        for entry in entries {
            users.add(self, of_entry(entry));
        }
        match reported {
            ReportedState::Away => users.without_delay(),
            ReportedState::RequestsSlot | ReportedState::Served => users,
        }
    }

    fn users(&self, tenant_status: &TenantStatus, entries: &[MachineDeploymentEntry]) -> Users {
        tenant_status.read(|report| {
            let mut users = Users {
                is_listed: report.existing.is_some(),
                ..Users::default()
            };
            let Some(existing) = &report.existing else {
                for entry in entries {
                    users.add(self, of_entry(entry));
                }
                // A tenant that is not engaged delays no other.
                return users.without_delay();
            };
            for name in existing
                .iter()
                .filter(|name| !report.ignored.contains(*name))
            {
                if let Some(outcome) = report.outcomes.get(name) {
                    users.add(self, of_outcome(outcome));
                } else {
                    users.not_reconciled += 1;
                    if let Some(entry) = entries.iter().find(|entry| entry.name == *name) {
                        users.add(self, of_entry(entry));
                    }
                }
            }
            let connected = report.findings.get(&ConditionType::Connected);
            if connected.is_some_and(|finding| !finding.holds) {
                users = users.without_delay();
            }
            users
        })
    }

    fn is_ours(&self, name: &str, version: &str) -> bool {
        let default = self.defaults.iter().find(|default| default.name == name);
        default.is_none_or(|default| !is_older(version, &default.spec.version))
    }
}

/// A machine deployment: its default profile with version, and the reason of its outcome.
type User<'a> = (Option<(&'a str, &'a str)>, Option<Reason>);

fn of_outcome(outcome: &Outcome) -> User<'_> {
    let default = outcome.profile.as_ref().and_then(|it| it.default.as_ref());
    let default = default.map(|(name, version)| (name.as_str(), version.as_str()));
    (default, Some(outcome.reason))
}

fn of_entry(entry: &MachineDeploymentEntry) -> User<'_> {
    let default = entry.profile.as_ref().and_then(|it| it.default.as_ref());
    let default = default.and_then(|default| default.split_once(' '));
    (default, Reason::named(&entry.reason))
}

/// The state of a tenant according to the status that another replica wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedState {
    /// Its cluster does not answer, or no replica serves it.
    Away,
    /// It requests a slot.
    RequestsSlot,
    /// It is served, and requests nothing.
    Served,
}

impl ReportedState {
    fn from_status(status: &WorkerClusterStatus) -> Self {
        let condition = |kind: ConditionType| kind.find_in(&status.conditions);
        let connected = condition(ConditionType::Connected);
        if connected.is_none_or(|it| it.status != "True") {
            return Self::Away;
        }
        let installed = condition(ConditionType::ProfilesInstalled);
        match installed.and_then(|it| Reason::named(&it.reason)) {
            Some(Reason::AwaitingTurn | Reason::RolloutPaused) => Self::RequestsSlot,
            _ => Self::Served,
        }
    }
}

/// The states of all tenants, and since when they have not changed.
#[derive(Debug, Default)]
struct Calm {
    states: BTreeMap<TenantId, ParticipantState>,
    since: Option<Instant>,
}

impl Calm {
    /// Records the states. Returns true if they have not changed for a while.
    fn observe(&mut self, participants: &[Participant<TenantId>]) -> bool {
        let now = Instant::now();
        let states = participants.iter().map(|it| (it.id.clone(), it.state));
        let states = states.collect();
        if self.states != states {
            self.states = states;
            self.since = Some(now);
        }
        self.since.is_none_or(|since| now >= since + CALM)
    }
}

/// The machine deployments of a tenant that use default profiles.
#[derive(Debug, Default)]
struct Users {
    is_listed: bool,
    tried: usize,
    failed: usize,
    /// Those that were last tried with an older version.
    behind: usize,
    /// Those that have not been reconciled since the tenant was engaged.
    not_reconciled: usize,
}

impl Users {
    fn add(&mut self, rollout: &Rollout, (default, reason): User<'_>) {
        match default {
            None => {}
            Some((name, version)) if rollout.is_ours(name, version) => {
                self.tried += 1;
                self.failed += usize::from(reason.is_some_and(is_profiles_fault));
            }
            Some(_) => self.behind += 1,
        }
    }

    /// Returns true if every machine deployment has been reconciled since the tenant was engaged.
    const fn are_known(&self) -> bool {
        self.is_listed && self.not_reconciled == 0
    }

    fn without_delay(self) -> Self {
        Self {
            behind: 0,
            not_reconciled: 0,
            ..self
        }
    }
}
