//! The channels between the membership and the fleet about crashes, and the log of crashes in
//! Leases.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::watch;

use super::{
    Holder, View,
    observed_leases::Listed,
    suspicion::{Crashes, Incident, Record, Trial},
};

/// The fleet's end of the channels.
#[derive(Clone, Debug)]
pub struct Precautions {
    /// The crashes of the last day.
    pub crashes: watch::Receiver<Arc<Crashes>>,
    /// The trial that the fleet is about to begin, or has begun.
    pub wanted: watch::Sender<Option<Trial>>,
    /// The trial that the replica's Lease names.
    pub announced: watch::Receiver<Option<Trial>>,
}

impl Default for Precautions {
    /// Creates the end of a replica that never hears of a crash.
    fn default() -> Self {
        Announcer::new().1
    }
}

/// The membership's end of the channels.
pub(super) struct Announcer {
    crashes: watch::Sender<Arc<Crashes>>,
    pub(super) wanted: watch::Receiver<Option<Trial>>,
    announced: watch::Sender<Option<Trial>>,
}

impl Announcer {
    pub(super) fn new() -> (Self, Precautions) {
        let request = watch::Sender::new(None);
        let announcer = Self {
            crashes: watch::Sender::new(Arc::default()),
            wanted: request.subscribe(),
            announced: watch::Sender::new(None),
        };
        let precautions = Precautions {
            crashes: announcer.crashes.subscribe(),
            wanted: request,
            announced: announcer.announced.subscribe(),
        };
        (announcer, precautions)
    }

    /// Sends the known crashes and the announced trial to the fleet.
    pub(super) fn report(&self, log: &CrashLog) {
        self.crashes.send_if_modified(|known| {
            let are_others = **known != log.record.crashes;
            if are_others {
                *known = Arc::new(log.record.crashes.clone());
            }
            are_others
        });
        self.announced.send_if_modified(|trial| {
            let is_another = *trial != log.written.trial;
            *trial = log.written.trial;
            is_another
        });
    }
}

/// The crashes that a replica knows of, and what its Lease records about them.
#[derive(Debug, Default)]
pub(super) struct CrashLog {
    record: Record,
    written: Record,
    /// The trials of other replicas, by the names of their Leases.
    trials: BTreeMap<String, Trial>,
}

impl CrashLog {
    /// Adds the crashes that all Leases record. `now` is in seconds since 1970.
    pub(super) fn merge(&mut self, listed: &Listed, now: i64) {
        for other in listed.records.values() {
            self.record.crashes.extend(other.crashes.clone());
        }
        self.record.crashes.prune(now);
        let trials = listed.records.iter();
        let trials = trials.filter_map(|(name, record)| Some((name.clone(), record.trial?)));
        self.trials = trials.collect();
    }

    /// Records that the holder of a Lease is gone. `view` is the set of replicas whose numbers it
    /// had to exceed.
    pub(super) fn crashed(&mut self, (lease, holder): (&str, &Holder), view: &View, now: i64) {
        tracing::warn!(replica = %holder, "a replica ended without leaving the fleet");
        let trial = self.trials.get(lease).copied();
        let crash = Incident::crash(holder, view, now).during(trial);
        self.record.crashes.insert(crash);
    }

    /// Returns the record to write at `now` into the replica's Lease during this trial. If the
    /// trial is not the previous one, the replica has survived that.
    pub(super) fn record(
        &mut self,
        trial: Option<Trial>,
        (me, view): (&Holder, &View),
        now: i64,
    ) -> Record {
        let before = std::mem::replace(&mut self.record.trial, trial);
        if let Some(survived) = before.filter(|_| before != trial) {
            let incident = Incident::crash(me, view, now).survived(survived);
            self.record.crashes.insert(incident);
        }
        self.record.clone()
    }

    /// Returns true if the replica's Lease does not contain this yet.
    pub(super) fn has_news(&self, trial: Option<Trial>) -> bool {
        self.written.trial != trial || self.written.crashes != self.record.crashes
    }

    /// Records what the server has stored.
    pub(super) fn wrote(&mut self, record: Record) {
        self.written = record;
    }
}
