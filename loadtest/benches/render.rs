//! How fast profiles compile and render, and how much they allocate.
//!
//! `cargo bench --bench render`; docs/performance.md keeps the figures. The pair of one profile in
//! both languages is read from the conformance vectors, where they are there.

use std::{fs, path::Path};

use divan::{AllocProfiler, Bencher, counter::ItemsCount};
use osm::{
    api::profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
    client::permits::Priority,
    render::{
        Limits,
        convert::convert,
        default_profiles::default_profile,
        encode::{MachineInput, encode},
        error::Half,
        template::CompiledProfile,
    },
    render_worker::Pool,
    tenant::id::TenantId,
};
use tokio::runtime::Builder;

use subject::Subject;

#[path = "../../tests/rendering/subject.rs"]
mod subject;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

fn ubuntu() -> OperatingSystemProfileSpec {
    let profile = default_profile("osp-ubuntu").expect("it is a default profile");
    profile.spec
}

/// A profile that users have today, in Go's language.
fn go_ubuntu() -> Option<OperatingSystemProfileSpec> {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance");
    let text = fs::read_to_string(vectors.join("reconcile/ubuntu-aws/profile.yaml")).ok()?;
    let profile: OperatingSystemProfile = serde_saphyr::from_str(&text).ok()?;
    Some(profile.spec)
}

fn bench_render(bencher: Bencher<'_, '_>, profile: &OperatingSystemProfileSpec) {
    let profile = CompiledProfile::compile(profile).expect("the profile compiles");
    let subject = Subject::new();
    bencher
        .counter(ItemsCount::new(1_u32))
        .bench_local(|| subject.render(&profile).expect("the profile renders"));
}

/// The config in both forms, and both documents, with everything compiled.
#[divan::bench]
fn render_jinja(bencher: Bencher<'_, '_>) {
    bench_render(bencher, &ubuntu());
}

/// The same of a profile in Go's language.
#[divan::bench]
fn render_go(bencher: Bencher<'_, '_>) {
    match go_ubuntu() {
        Some(profile) => bench_render(bencher, &profile),
        None => eprintln!("left out: there are no conformance vectors"),
    }
}

/// The very same, converted: what Go's language costs is the difference.
#[divan::bench]
fn render_go_converted(bencher: Bencher<'_, '_>) {
    match go_ubuntu() {
        Some(profile) => {
            let converted = convert(&profile).expect("the profile can be converted");
            bench_render(bencher, &converted);
        }
        None => eprintln!("left out: there are no conformance vectors"),
    }
}

/// The same as `render_jinja`, with the sizes checked, by a worker that has the profile compiled,
/// or by one that is started for it.
#[divan::bench(args = [Worker::Warm, Worker::Cold])]
fn render_in_worker(bencher: Bencher<'_, '_>, worker: Worker) {
    let profile = CompiledProfile::compile(&ubuntu()).expect("the profile compiles");
    let (subject, tenant) = (Subject::new(), TenantId::new("tenant-berlin"));
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let pool = || Pool::new(env!("CARGO_BIN_EXE_osm"));
    let render = |pool: &Pool| {
        let rendered = subject.with_input(&profile, |input| {
            let answered = runtime.block_on(async {
                let slot = pool.acquire(&tenant, Priority::High).await;
                slot.render(input, &Limits::default()).await
            });
            answered.expect("the worker answers")
        });
        rendered.expect("the profile renders")
    };
    let bencher = bencher.counter(ItemsCount::new(1_u32));
    match worker {
        Worker::Warm => {
            let pool = pool();
            render(&pool);
            bencher.bench_local(|| render(&pool));
        }
        Worker::Cold => {
            // Ending one needs the runtime, too.
            let _entered = runtime.enter();
            bencher
                .with_inputs(pool)
                .bench_local_refs(|pool| render(pool));
        }
    }
}

/// Whether a worker has the profile compiled.
#[derive(Clone, Copy, Debug)]
enum Worker {
    Warm,
    Cold,
}

#[divan::bench]
fn compile_jinja(bencher: Bencher<'_, '_>) {
    let profile = ubuntu();
    bencher.bench_local(|| CompiledProfile::compile(&profile).expect("the profile compiles"));
}

#[divan::bench]
fn compile_go(bencher: Bencher<'_, '_>) {
    match go_ubuntu() {
        Some(profile) => {
            bencher.bench_local(|| CompiledProfile::compile(&profile).expect("it compiles"));
        }
        None => eprintln!("left out: there are no conformance vectors"),
    }
}

/// A config as one document.
#[divan::bench(args = [Half::Bootstrap, Half::Provisioning])]
fn encode_cloud_init(bencher: Bencher<'_, '_>, half: Half) {
    let profile = CompiledProfile::compile(&ubuntu()).expect("the profile compiles");
    let config = Subject::new()
        .render(&profile)
        .expect("the profile renders")
        .config;
    let machine = MachineInput {
        name: "workers",
        dist_upgrade_on_boot: false,
    };
    bencher.bench_local(|| encode(&config, half, machine).expect("the config is safe"));
}

/// A profile's YAML, as commands read it.
#[divan::bench]
fn parse_yaml() -> OperatingSystemProfileSpec {
    ubuntu()
}
