//! What happens in one world: drawn from a number, the same each time, and told in words.

use std::{fmt, time::Duration};

use fake_cluster::Revisions;
use rand::{
    RngExt, SeedableRng,
    rngs::StdRng,
    seq::{IndexedRandom, SliceRandom},
};

/// Which of a machine deployment's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    Provisioning,
    Bootstrap,
    KubeletKubeconfig,
    Token,
    Config,
}

/// What goes wrong between the manager and a cluster, until it is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Answered with this code, not executed.
    Code(u16),
    /// Executed, and answered with 500.
    CodeAfter,
    Reset,
    ResetAfter,
    Refused,
    Hang,
    HangAfter,
    Delay,
}

/// Which cluster: a tenant's, by its number, or the management cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    Management,
    Worker(usize),
}

/// A machine deployment: its tenant's number and its own.
pub type Which = (usize, usize);

/// Whether somebody else has a finalizer on a machine deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizer {
    Foreign,
    None,
}

/// What is restored from the last backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    Management,
    Worker(usize),
    /// All clusters at once.
    All,
}

/// What becomes of requests that do not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    Hangs,
    Refuses,
}

/// Which link of a machine's way to a node breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The fetcher's Role grants nothing.
    RulesOfRole,
    /// The fetcher's RoleBinding binds nobody.
    SubjectsOfBinding,
    /// The fetcher's RoleBinding refers to another Role.
    RoleOfBinding,
    /// The fetcher's Role is deleted.
    Role,
    /// The fetcher's RoleBinding is deleted.
    Binding,
    /// The fetcher is deleted.
    Account,
    /// The Secret with the fetcher's token is deleted.
    FetchToken,
    /// The namespace of the documents is deleted, and the manager's rights in it; when troubles end
    /// a person restores these.
    Namespace,
    /// Kubelets may not request certificates until troubles end.
    Bootstrapper,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A machine deployment is made, or made again; with the finalizer of somebody else, or none.
    Create(Which, Finalizer),
    /// machine-controller raises the revision.
    Revise(Which),
    /// A user changes an annotation.
    Annotate(Which),
    /// A user deletes it.
    Delete(Which),
    /// Somebody removes it with its finalizers.
    Vanish(Which),
    /// The tenant's profile prints something else.
    EditProfile(usize),
    /// The tenant's profile has another version and prints the same.
    BumpProfile(usize),
    /// The tenant's settings change.
    Set(usize),
    /// The tenant is paused, or not any more.
    Pause(usize),
    /// The registration has another token, and the old one is worthless.
    RotateKubeconfig(usize),
    /// The registration is removed; when troubles end it is made again.
    Unregister(usize),
    /// The registration is made again, if it was removed.
    Register(usize),
    /// The fetcher has another token.
    RotateFetchToken(usize),
    /// Somebody writes other bytes into what we made.
    Tamper(Which, Made),
    /// Somebody deletes what we made.
    Lose(Which, Made),
    /// Time goes by.
    Wait(u32),
    /// The process ends in order, and another starts.
    Restart,
    /// The process is killed, and another starts.
    Kill,
    /// The process dies before its n-th call from here, and another starts with the next step.
    DieBefore(u64),
    /// As above, after the call.
    DieAfter(u64),
    /// Each second call fails like this, until it is mended.
    Trouble(Where, Trouble),
    /// Watches of these resources lose each second event, until they are mended.
    Deafen(Where, &'static str),
    /// Watches break off.
    Close(Where),
    /// Watches break off and cannot resume.
    Expire(Where),
    /// The next lists of these resources show an old state, and the watches start over from it.
    Stale(Where, &'static str),
    /// The process is killed, and the first lists of the next show an older state than it saw.
    StaleStart(Where),
    /// Half of all lists and watches of these resources bring what cannot be read, until they are
    /// mended.
    Spoil(Where, &'static str),
    /// A machine deployment appears that cannot be read, and stays until troubles are mended.
    Unreadable(usize),
    /// All clusters are backed up.
    BackUp,
    /// Clusters are restored from the last backup; without one, from the beginning.
    Restore(Restored, Revisions),
    /// The tenant's WorkerCluster is deleted.
    DropSettings(usize),
    /// The tenant's WorkerCluster is deleted and made again.
    RecreateSettings(usize),
    /// The tenant's namespace is deleted; when troubles end it is made again.
    DeleteNamespace(usize),
    /// No call to a cluster arrives, until it is mended.
    CutOff(Where, Outage),
    /// A link of a tenant's machines breaks.
    Break(usize, Link),
    /// The process ends in order, and the next one's clock is this many minutes ahead of the
    /// clusters', or behind if it is negative; when troubles end it is right again.
    Skew(i64),
    /// The process gets no time to run for this many seconds.
    Suspend(u64),
    /// All troubles end.
    Mend,
}

/// A history, and the world that it happens in.
pub struct History {
    /// The number that it was drawn from.
    pub seed: u64,
    /// How many tenants there are.
    pub tenants: usize,
    /// What happens, and how long after what happened before.
    pub steps: Vec<(Duration, Step)>,
}

/// Machine deployments of one tenant.
pub const MACHINES: usize = 3;

impl History {
    /// The history of this number.
    pub fn draw(seed: u64) -> Self {
        let mut row = StdRng::seed_from_u64(seed);
        // One world in fifty is large.
        let tenants = if seed % 50 == 49 {
            row.random_range(20..40)
        } else {
            row.random_range(1..4)
        };
        let count = row.random_range(8..24) + tenants / 4;
        let mut steps: Vec<(Duration, Step)> = (0..tenants)
            .map(|tenant| (Duration::ZERO, Step::Create((tenant, 0), Finalizer::None)))
            .collect();
        // Some worlds are settled when it begins.
        steps.push((Duration::ZERO, Step::Wait(row.random_range(0..2))));
        for _ in 0..count {
            steps.push((pause(&mut row), step(&mut row, tenants)));
        }
        insert_disasters(&mut steps, seed, tenants);
        insert_breaks(&mut steps, seed, tenants);
        Self {
            seed,
            tenants,
            steps,
        }
    }

    /// Whether watches of profiles lose events or are silent: those heal the latest.
    pub fn loses_profiles(&self) -> bool {
        self.steps.iter().any(|(_, step)| match step {
            Step::Deafen(_, resource) | Step::Spoil(_, resource) => {
                *resource == "operatingsystemprofiles"
            }
            Step::Restore(restored, Revisions::GoBack) => !matches!(restored, Restored::Worker(_)),
            _ => false,
        })
    }
}

/// What befalls whole clusters and processes, in every other history. Drawn apart: the rest of a
/// history is what it would be without.
fn insert_disasters(steps: &mut Vec<(Duration, Step)>, seed: u64, tenants: usize) {
    let row = &mut StdRng::seed_from_u64(!seed);
    if row.random_bool(0.5) {
        return;
    }
    for _ in 0..row.random_range(1..6) {
        let at = row.random_range(tenants + 1..=steps.len());
        steps.insert(at, (pause(row), disaster(row, tenants)));
    }
}

/// What befalls the way of machines to their nodes, in every other history. Drawn apart, too.
fn insert_breaks(steps: &mut Vec<(Duration, Step)>, seed: u64, tenants: usize) {
    let row = &mut StdRng::seed_from_u64(seed.rotate_right(1) ^ !0 << 32);
    if row.random_bool(0.5) {
        return;
    }
    for _ in 0..row.random_range(1..5) {
        let at = row.random_range(tenants + 1..=steps.len());
        let step = if row.random_bool(0.1) {
            Step::Skew(row.random_range(-180..180))
        } else {
            Step::Break(row.random_range(0..tenants), link(row))
        };
        steps.insert(at, (pause(row), step));
    }
}

fn link(row: &mut StdRng) -> Link {
    let all = [
        Link::RulesOfRole,
        Link::SubjectsOfBinding,
        Link::RoleOfBinding,
        Link::Role,
        Link::Binding,
        Link::Account,
        Link::FetchToken,
        Link::Namespace,
        Link::Bootstrapper,
    ];
    *all.choose(row).expect("there are nine")
}

fn disaster(row: &mut StdRng, tenants: usize) -> Step {
    let tenant = row.random_range(0..tenants);
    match row.random_range(0..20) {
        0..4 => Step::BackUp,
        4..9 => restore(row, tenant),
        9 | 10 => Step::DropSettings(tenant),
        11 | 12 => Step::RecreateSettings(tenant),
        13 => Step::DeleteNamespace(tenant),
        14..17 => cut_off(row, tenant),
        _ => Step::Suspend(row.random_range(1..900)),
    }
}

fn restore(row: &mut StdRng, tenant: usize) -> Step {
    let restored = match row.random_range(0..3) {
        0 => Restored::Management,
        1 => Restored::Worker(tenant),
        _ => Restored::All,
    };
    let revisions = if row.random_bool(0.5) {
        Revisions::GoBack
    } else {
        Revisions::AreBumped
    };
    Step::Restore(restored, revisions)
}

fn cut_off(row: &mut StdRng, tenant: usize) -> Step {
    let place = if row.random_bool(0.7) {
        Where::Management
    } else {
        Where::Worker(tenant)
    };
    let outage = if row.random_bool(0.5) {
        Outage::Hangs
    } else {
        Outage::Refuses
    };
    Step::CutOff(place, outage)
}

fn pause(row: &mut StdRng) -> Duration {
    match row.random_range(0..6) {
        0 => Duration::ZERO,
        1 => Duration::from_millis(row.random_range(1..50)),
        2 => Duration::from_millis(row.random_range(50..2_000)),
        3 | 4 => Duration::from_secs(row.random_range(2..20)),
        _ => Duration::from_secs(row.random_range(20..120)),
    }
}

fn step(row: &mut StdRng, tenants: usize) -> Step {
    let tenant = row.random_range(0..tenants);
    let which = (tenant, row.random_range(0..MACHINES));
    match row.random_range(0..100) {
        0..10 => Step::Create(which, finalizer(row)),
        10..18 => Step::Revise(which),
        18..22 => Step::Annotate(which),
        22..29 => Step::Delete(which),
        29..31 => Step::Vanish(which),
        31..38 => Step::EditProfile(tenant),
        38..41 => Step::BumpProfile(tenant),
        41..45 => Step::Set(tenant),
        45..48 => Step::Pause(tenant),
        48..51 => Step::RotateKubeconfig(tenant),
        51..53 => Step::RotateFetchToken(tenant),
        53..58 => Step::Tamper(which, made(row)),
        58..63 => Step::Lose(which, made(row)),
        63..67 => Step::Wait(row.random_range(5..70)),
        67..69 => Step::Restart,
        69..71 => Step::Kill,
        71..74 => Step::DieBefore(row.random_range(1..25)),
        74..77 => Step::DieAfter(row.random_range(1..25)),
        77..83 => Step::Trouble(place(row, tenant), trouble(row)),
        83..87 => deafen(row, tenant),
        87..89 => Step::Close(place(row, tenant)),
        89..91 => Step::Expire(place(row, tenant)),
        91..93 => Step::Stale(Where::Worker(tenant), "secrets"),
        93 => Step::StaleStart(place(row, tenant)),
        94 => spoil(row, tenant),
        95 => Step::Unreadable(tenant),
        96 => Step::Unregister(tenant),
        97 => Step::Register(tenant),
        _ => Step::Mend,
    }
}

fn finalizer(row: &mut StdRng) -> Finalizer {
    if row.random_bool(0.3) {
        Finalizer::Foreign
    } else {
        Finalizer::None
    }
}

fn made(row: &mut StdRng) -> Made {
    let all = [
        Made::Provisioning,
        Made::Bootstrap,
        Made::KubeletKubeconfig,
        Made::Token,
        Made::Config,
    ];
    *all.choose(row).expect("there are five")
}

fn place(row: &mut StdRng, tenant: usize) -> Where {
    if row.random_bool(0.3) {
        Where::Management
    } else {
        Where::Worker(tenant)
    }
}

fn trouble(row: &mut StdRng) -> Trouble {
    let mut all = [
        Trouble::Code(500),
        Trouble::Code(429),
        Trouble::Code(409),
        Trouble::CodeAfter,
        Trouble::Reset,
        Trouble::ResetAfter,
        Trouble::Refused,
        Trouble::Hang,
        Trouble::HangAfter,
        Trouble::Delay,
    ];
    all.shuffle(row);
    all[0]
}

fn deafen(row: &mut StdRng, tenant: usize) -> Step {
    match row.random_range(0..12) {
        0..5 => Step::Deafen(Where::Worker(tenant), "machinedeployments"),
        5..9 => Step::Deafen(Where::Worker(tenant), "secrets"),
        9 => Step::Deafen(Where::Management, "operatingsystemconfigs"),
        10 => Step::Deafen(Where::Management, "workerclusters"),
        _ => Step::Deafen(Where::Management, "operatingsystemprofiles"),
    }
}

fn spoil(row: &mut StdRng, tenant: usize) -> Step {
    match row.random_range(0..6) {
        0 => Step::Spoil(Where::Worker(tenant), "machinedeployments"),
        1 => Step::Spoil(Where::Worker(tenant), "secrets"),
        2 => Step::Spoil(Where::Management, "operatingsystemconfigs"),
        3 => Step::Spoil(Where::Management, "workerclusters"),
        4 => Step::Spoil(Where::Management, "secrets"),
        _ => Step::Spoil(Where::Management, "operatingsystemprofiles"),
    }
}

impl fmt::Display for History {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "seed {}, {} tenants", self.seed, self.tenants)?;
        for (index, (after, step)) in self.steps.iter().enumerate() {
            writeln!(formatter, "  {index:>3}. after {after:?}: {step:?}")?;
        }
        write!(
            formatter,
            "replay: OSM_SIMULATION_SEED={} cargo test --test simulation",
            self.seed
        )
    }
}
