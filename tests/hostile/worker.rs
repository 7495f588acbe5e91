//! Workers render the same bytes as this process, and a template that exceeds the limits of a
//! worker kills only that worker. The engine's own limits are disabled for that.

use std::{fs, path::Path, pin::pin, sync::Arc, time::Duration};

use libtest_mimic::{Failed, Trial};
use osm::{
    api::profile::TemplateLanguage,
    client::permits::Priority,
    render::{
        Limits, RenderError, RenderInput,
        default_profiles::{default_profile, default_profiles},
        input::RegistryCredential,
        render,
        template::CompiledProfile,
    },
    render_worker::{ALLOCATOR_SETTINGS, MEMORY_BYTES_MAX, Pool, WorkerError},
    rules::user_data::Weighed,
    tenant::{id::TenantId, secret_text::SecretText},
};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Signal, kill_process},
};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use super::{every_case, one_file::a_profile_of, subject::Subject};

/// Disables the engine's accounting.
const UNLIMITED: Limits = Limits {
    fuel: 1 << 60,
    output_bytes_max: 1 << 60,
    work_bytes_max: 1 << 60,
};

/// Creates a test per function, with the function's name.
macro_rules! named {
    ($($test:ident),* $(,)?) => {
        vec![$(Trial::test(concat!("worker::", stringify!($test)), $test)),*]
    };
}

/// Returns all tests of workers.
pub fn trials() -> Vec<Trial> {
    named![
        a_worker_renders_the_same_bytes_as_this_process,
        every_hostile_template_ends_in_a_worker_as_in_process,
        exceeding_the_memory_limit_kills_only_the_worker,
        exceeding_the_deadline_kills_only_the_worker,
        a_worker_inherits_no_files_environment_or_privileges,
        a_killed_worker_is_replaced,
        idle_workers_are_stopped,
        tenants_that_hit_limits_share_one_worker,
    ]
}

/// A pool with its own runtime.
struct Workers {
    runtime: Runtime,
    pool: Arc<Pool>,
}

/// Many times what the slowest template takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

type Outcome = Result<Result<Weighed, RenderError>, WorkerError>;

impl Workers {
    fn new() -> Result<Self, Failed> {
        Self::of(Pool::new(env!("CARGO_BIN_EXE_osm")))
    }

    /// Workers whose renders may take their time: the outcome is what counts.
    fn patient() -> Result<Self, Failed> {
        Self::of(Pool::new(env!("CARGO_BIN_EXE_osm")).with_deadline(PATIENCE))
    }

    fn of(pool: Pool) -> Result<Self, Failed> {
        Ok(Self {
            runtime: Builder::new_current_thread().enable_all().build()?,
            pool: Arc::new(pool),
        })
    }

    fn render(&self, input: &RenderInput<'_>, limits: &Limits) -> Outcome {
        let tenant = TenantId::new("tenant-berlin");
        self.runtime.block_on(async {
            let slot = self.pool.acquire(&tenant, Priority::High).await;
            slot.render(input, limits).await
        })
    }

    /// Renders a profile of one file.
    fn render_one(&self, template: &str, limits: &Limits) -> Result<Outcome, Failed> {
        let profile = a_profile_of(TemplateLanguage::Jinja, template);
        let profile = CompiledProfile::compile(&profile)?;
        let outcome = Subject::new().with_input(&profile, |input| Ok(self.render(input, limits)));
        Ok(outcome?)
    }

    /// Fails unless an ordinary profile renders.
    fn serves(&self) -> Result<(), Failed> {
        let weighed = self.render_one("{{ KubeVersion }}", &Limits::default())???;
        weighed.documents?;
        Ok(())
    }
}

/// Returns a subject that sets every input of a render.
fn a_rich_subject() -> Subject {
    let mut subject = Subject::new();
    subject.provider_spec = json!({
        "operatingSystem": "rhel",
        "cloudProvider": "openstack",
        // serde_json reads these numbers exactly only with its feature `float_roundtrip`.
        "cloudProviderSpec": {
            "small": -1.819_967_304_027_17e-179, "ratio": 3.026_199_944_157_320_3e-52, "n": u64::MAX,
        },
        "sshPublicKeys": ["ssh-ed25519 AAAA a"],
        "operatingSystemSpec": {
            "distUpgradeOnBoot": true,
            "rhelSubscriptionManagerUser": "hidden-user",
            "rhelSubscriptionManagerPassword": "hidden-password",
            "rhsmOfflineToken": "hidden-offline-token",
        },
        "overwriteCloudConfig": "hidden-cloud-config",
    });
    let key = "v1.kubelet-config.machine-controller.kubermatic.io/MaxPods";
    subject.annotations = [(key.to_owned(), "77".to_owned())].into();
    subject.settings.variables = [("site".to_owned(), "a\u{0}\u{2028}b".to_owned())].into();
    subject.settings.http_proxy = Some("http://proxy.example:3128".to_owned());
    let credential = RegistryCredential {
        username: SecretText::new("hidden-registry-user"),
        password: SecretText::new("hidden-registry-password"),
        ..RegistryCredential::default()
    };
    subject.registry_credentials = [("registry.example".to_owned(), credential)].into();
    subject
}

/// Returns a subject with a static network.
fn a_static_subject() -> Subject {
    let mut subject = Subject::new();
    subject.provider_spec = json!({
        "operatingSystem": "flatcar",
        "cloudProvider": "vsphere",
        "operatingSystemSpec": {"provisioningUtility": "ignition"},
        "network": {"cidr": "10.0.0.7/24", "gateway": "10.0.0.1", "dns": {"servers": ["1.1.1.1"]}},
    });
    subject
}

fn a_worker_renders_the_same_bytes_as_this_process() -> Result<(), Failed> {
    for (name, subject) in [
        ("plain", Subject::new()),
        ("rich", a_rich_subject()),
        ("static", a_static_subject()),
    ] {
        let compared = compare(&subject).map_err(|error| format!("{name}: {error:?}"))?;
        if compared == 0 {
            return Err(format!("{name}: no profile renders it").into());
        }
    }
    Ok(())
}

/// Renders every default profile here and in a worker. Returns how many documents were compared.
fn compare(subject: &Subject) -> Result<usize, Failed> {
    let workers = Workers::new()?;
    let mut compared = 0;
    for default in default_profiles() {
        let profile = default_profile(default.name).ok_or("it is no profile")?;
        let profile = CompiledProfile::compile(&profile.spec)?;
        let both = subject.with_input(&profile, |input| {
            let limits = Limits::default();
            Ok((render(input, &limits), workers.render(input, &limits)))
        });
        let (here, there) = both?;
        let there = there?;
        match (here, there) {
            (Ok(here), Ok(there)) => {
                let is_equal = there
                    .documents
                    .is_ok_and(|documents| documents.rendered == here);
                if !is_equal {
                    return Err(format!("{} differs", default.name).into());
                }
                compared += 1;
            }
            (Err(here), Err(there)) if here == there => {}
            (here, there) => {
                let (here, there) = (here.err(), there.err());
                return Err(format!("{}: {here:?}, {there:?}", default.name).into());
            }
        }
    }
    Ok(compared)
}

fn every_hostile_template_ends_in_a_worker_as_in_process() -> Result<(), Failed> {
    let workers = Workers::patient()?;
    let subject = Subject::new();
    for case in every_case() {
        let name = &case.name;
        // Profiles that do not compile are never sent to a worker.
        let Ok(profile) = CompiledProfile::compile(&a_profile_of(case.language, &case.template))
        else {
            continue;
        };
        let outcome = subject.with_input(&profile, |input| Ok(workers.render(input, &case.limits)));
        let outcome = outcome?.map_err(|stopped| format!("{name}: {stopped}"))?;
        let category = outcome
            .as_ref()
            .map_or_else(RenderError::category, |_| "rendered");
        if !case.refused_as.iter().any(|it| it == category) {
            return Err(format!("{name}: `{category}`").into());
        }
    }
    Ok(())
}

fn exceeding_the_memory_limit_kills_only_the_worker() -> Result<(), Failed> {
    let workers = Workers::patient()?;
    // Sixteen bytes, doubled until they exceed the memory limit.
    let doubled = usize::try_from(MEMORY_BYTES_MAX.ilog2())?;
    let doubling = "{% set a = a ~ a %}".repeat(doubled);
    let template = format!("{{% set a = '0123456789abcdef' %}}{doubling}{{{{ a | length }}}}");
    match workers.render_one(&template, &UNLIMITED)? {
        Err(WorkerError::Exited) => {}
        other => return Err(format!("it went on: {other:?}").into()),
    }
    workers.serves()
}

fn exceeding_the_deadline_kills_only_the_worker() -> Result<(), Failed> {
    let workers = Workers::new()?;
    let template = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}\
                    {% endfor %}{% endfor %}{% endfor %}";
    match workers.render_one(template, &UNLIMITED)? {
        Err(WorkerError::TimedOut(_)) => {}
        other => return Err(format!("it went on: {other:?}").into()),
    }
    workers.serves()
}

/// Returns a file of `/proc/ID` as lines of words.
fn proc_file(id: u32, what: &str) -> Result<Vec<Vec<String>>, Failed> {
    let text = fs::read_to_string(format!("/proc/{id}/{what}"))?;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    Ok(text.lines().map(words).collect())
}

/// Returns the nineteenth field of `/proc/ID/stat`. The name of a process that we started is one
/// word.
fn niceness(id: u32) -> Result<i32, Failed> {
    let stat = proc_file(id, "stat")?.concat();
    Ok(stat.get(18).ok_or("the file has too few fields")?.parse()?)
}

fn a_worker_inherits_no_files_environment_or_privileges() -> Result<(), Failed> {
    let inheritable = fs::File::open("/dev/zero")?;
    fcntl_setfd(&inheritable, FdFlags::empty())?;
    let workers = Workers::new()?;
    workers.serves()?;
    let [id] = workers.pool.idle()[..] else {
        return Err("one worker is idle".into());
    };
    let memory = MEMORY_BYTES_MAX.to_string();
    let (status, limits) = (proc_file(id, "status")?, proc_file(id, "limits")?);
    for (lines, begin) in [
        (&status, vec!["NoNewPrivs:", "1"]),
        (&status, vec!["Threads:", "1"]),
        (&limits, vec!["Max", "data", "size", &memory, &memory]),
        (&limits, vec!["Max", "core", "file", "size", "0", "0"]),
        (&limits, vec!["Max", "open", "files", "0", "0"]),
    ] {
        let begins = |line: &Vec<String>| {
            line.iter()
                .map(String::as_str)
                .take(begin.len())
                .eq(begin.iter().copied())
        };
        if !lines.iter().any(begins) {
            return Err(format!("no line begins with {begin:?}").into());
        }
    }
    if niceness(id)? <= niceness(std::process::id())? {
        return Err("its CPU priority is not lower than ours".into());
    }
    match fs::read(format!("/proc/{id}/environ")) {
        Ok(environment) => only_the_allocators_settings(&environment)?,
        // Only root may look into an undumpable process.
        Err(error) => eprintln!("the environment of a worker is not checked: {error}"),
    }
    match fs::read_dir(format!("/proc/{id}/fd")) {
        Ok(open) => only_pipes(open)?,
        Err(error) => eprintln!("the open files of a worker are not checked: {error}"),
    }
    Ok(())
}

fn only_the_allocators_settings(environment: &[u8]) -> Result<(), Failed> {
    let (name, value) = ALLOCATOR_SETTINGS;
    if environment != format!("{name}={value}\0").as_bytes() {
        return Err("it has another environment than the allocator's settings".into());
    }
    Ok(())
}

/// Fails if a file is open besides the two pipes and standard error.
fn only_pipes(open: fs::ReadDir) -> Result<(), Failed> {
    for file in open {
        let file = file?;
        let target = fs::read_link(file.path())?;
        let is_expected = match file.file_name().to_str() {
            // The third is a duplicate of standard output.
            Some("0" | "1" | "3") => target.to_string_lossy().starts_with("pipe:"),
            Some("2") => target == Path::new("/dev/null"),
            _ => false,
        };
        if !is_expected {
            return Err(format!("{} is {}", file.path().display(), target.display()).into());
        }
    }
    Ok(())
}

fn a_killed_worker_is_replaced() -> Result<(), Failed> {
    let workers = Workers::new()?;
    workers.serves()?;
    let before = workers.pool.idle();
    for id in &before {
        let id = Pid::from_raw(i32::try_from(*id)?).ok_or("no process has the number 0")?;
        kill_process(id, Signal::KILL)?;
    }
    while before.iter().any(|id| is_alive(*id)) {
        std::thread::yield_now();
    }
    workers.serves()?;
    if workers.pool.idle() == before {
        return Err("it is the same".into());
    }
    Ok(())
}

/// Whether a process is running. A zombie is not.
fn is_alive(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|it| it.chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn idle_workers_are_stopped() -> Result<(), Failed> {
    let workers = Workers::new()?;
    workers.serves()?;
    let ids = workers.pool.idle();
    workers.runtime.block_on(async {
        tokio::time::pause();
        let two_minutes = Duration::from_mins(2);
        let _never_ends = tokio::time::timeout(two_minutes, workers.pool.stop_idle()).await;
    });
    if !workers.pool.idle().is_empty() {
        return Err("a worker is idle for two minutes".into());
    }
    while ids.iter().any(|id| is_alive(*id)) {
        std::thread::yield_now();
    }
    Ok(())
}

fn tenants_that_hit_limits_share_one_worker() -> Result<(), Failed> {
    let workers = Workers::new()?;
    let little = Limits {
        fuel: 10,
        ..Limits::default()
    };
    let refused = workers.render_one("{% for a in range(100) %}{% endfor %}", &little)??;
    if !refused.is_err_and(|error| error.is_of_a_limit()) {
        return Err("it has hit no limit".into());
    }
    let (berlin, lisbon) = (
        TenantId::new("tenant-berlin"),
        TenantId::new("tenant-lisbon"),
    );
    workers.runtime.block_on(async {
        let _first = workers.pool.acquire(&berlin, Priority::High).await;
        let mut second = pin!(workers.pool.acquire(&berlin, Priority::High));
        if futures::poll!(second.as_mut()).is_ready() {
            return Err("it has two workers".into());
        }
        let _other = workers.pool.acquire(&lisbon, Priority::High).await;
        Ok(())
    })
}
