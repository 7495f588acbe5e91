//! The fleet page of the real binary: what it shows of tenants, to whom, and in a browser.

use std::path::Path;

use osm::api::names::PROFILE;
use serde_json::Value;

use crate::administrator::get;
use crate::browser::{Scheme, WINDOWS, Window, dom, measured, screenshot};
use crate::fixtures::{self, a_machine_deployment, with_annotation};
use crate::life::{page, page_with, send};
use crate::process::Binary;
use crate::stage::{Stage, Tenant, WORKER};
use crate::wait;
use crate::world::World;

/// Refused in a sentence that has this in it, and must stay text.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";
/// How many pixels of the page are to the right of the window.
const OVERFLOW: &str = "Math.max(0, document.documentElement.scrollWidth - innerWidth)";
/// Where a heading is, in pixels below the top of the window, when the first row is scrolled to it.
const HEADING: &str = "(document.body.style.minHeight = '300vh', \
    document.querySelector('tbody tr').scrollIntoView(), \
    document.querySelector('thead th').getBoundingClientRect().top)";
/// Stands before the page's script, and keeps what it would do at an interval.
const KEEP_THE_INTERVAL: &str = "<script>let kept; \
    window.setInterval = (...given) => { kept = given; };</script><main>";
/// The interval, and how the page navigates when it is over.
const RELOAD: &str = "(() => { let went; \
    navigation.onnavigate = (event) => { went = event.navigationType; event.preventDefault(); }; \
    kept[0](); return `${kept[1]} ${went}`; })()";
/// Whether each tenant's state is inside the window.
const STATES: &str = "[...document.querySelectorAll('tbody .state')] \
    .map((it) => it.getBoundingClientRect()) \
    .every((it) => it.width > 0 && it.left >= 0 && it.right <= innerWidth)";
/// The picture in the documentation is no larger.
const PICTURE_BYTES_MAX: usize = 100_000;

pub async fn every_tenant_is_told_to_this_machine_or_for_the_token(world: &'static World) {
    let stage = Stage::open(world, "fleet-page");
    let tenant = stage.tenant().await;
    let token = tempfile::NamedTempFile::new().expect("there is room for a file");
    std::fs::write(token.path(), "t0ken-of-this-test-0001\n").expect("the file is ours");
    let path = token.path().to_str().expect("our path is text");
    let binary = Binary::start(
        &stage,
        &[
            "--log-filter",
            "trace",
            "--admin-address",
            "0.0.0.0:0",
            "--fleet-page-token-file",
            path,
        ],
    );
    tenant.register().await;
    tenant.serve(&a_machine_deployment("workers")).await;
    tenant.says("Ready", "True", "Ready").await;
    let address = binary.admin_address().await;

    let refused = page(&address, "/fleet.json").await;
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    assert!(!refused.contains(&tenant.namespace), "{refused}");
    let head = "Host: osm.example\r\nAuthorization: Bearer t0ken-of-this-test-0001";
    let row = wait::until("the page shows a healthy tenant", async || {
        let answer = page_with(&address, ("/fleet.json", head)).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let told: Value = serde_json::from_str(body).expect("it is JSON");
        assert_eq!(at(&told, "/replica"), "osm-0");
        let row = at(&told, "/tenants/0");
        let is_settled = at(&row, "/state") == "Healthy" && at(&row, "/since").is_string();
        is_settled.then_some(row)
    })
    .await;
    assert_eq!(at(&row, "/name"), format!("{}/worker", tenant.namespace));
    let status = get(&tenant.worker_clusters(), WORKER).await;
    let status = status.status.expect("it was written");
    assert_eq!(
        at(&row, "/version"),
        *status.version.expect("the server was asked")
    );
    let ready = status.conditions.iter().find(|it| it.type_ == "Ready");
    let ready = ready.expect("it is ready").last_transition_time.0;
    assert_eq!(at(&row, "/since"), ready.to_string());
    assert_eq!(at(&row, "/machineDeployments/current"), 1);
    assert_eq!(at(&row, "/machineDeployments/total"), 1);
    assert_eq!(at(&row, "/lastReconcile/reason"), "Current");
    assert_eq!(
        at(&row, "/lastReconcile/machineDeployment"),
        "kube-system/workers"
    );
    let largest = tenant.made("workers", "1").await.provisioning_text().len();
    assert_eq!(at(&row, "/userDataBytesMax"), largest);
    assert!(
        at(&row, "/callLatencyMilliseconds").as_f64() > Some(0.0),
        "{row}"
    );

    std::fs::write(token.path(), "another-token-of-this-test\n").expect("the file is ours");
    let refused = page_with(&address, ("/fleet.json", head)).await;
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let log = binary.stop().await;
    assert!(!log.contains("t0ken-of-this-test"), "the token is no news");
}

pub async fn a_browser_that_signs_in_at_one_replica_sees_the_page_of_each(world: &'static World) {
    const TOKEN: &str = "t0ken-of-this-test-0002";
    let stage = Stage::open(world, "fleet-page-session");
    let tenant = stage.tenant().await;
    let token = tempfile::NamedTempFile::new().expect("there is room for a file");
    std::fs::write(token.path(), format!("{TOKEN}\n")).expect("the file is ours");
    let path = token.path().to_str().expect("our path is text");
    let replicas = ["osm-0", "osm-1"].map(|name| {
        let flags = ["--log-filter", "trace", "--fleet-page-token-file", path];
        Binary::start(&stage, &[&flags[..], &["--instance", name]].concat())
    });
    tenant.register().await;
    let [here, there] = &replicas;
    let (here, there) = (here.admin_address().await, there.admin_address().await);

    let asked = page(&here, "/fleet").await;
    assert!(asked.starts_with("HTTP/1.1 401 "), "{asked}");
    assert!(asked.contains("type=\"password\""), "{asked}");
    let foreign = sign_in(&here, ("http://127.0.0.1:1", TOKEN)).await;
    assert!(foreign.starts_with("HTTP/1.1 403 "), "{foreign}");
    let own = format!("http://{here}");
    let wrong = sign_in(&here, (&own, "another-token-of-this-test")).await;
    assert!(wrong.starts_with("HTTP/1.1 401 "), "{wrong}");
    let signed = sign_in(&here, (&own, TOKEN)).await;
    assert!(signed.starts_with("HTTP/1.1 303 "), "{signed}");
    let (_, cookie) = signed.split_once("set-cookie: ").expect("it has a session");
    let (cookie, _) = cookie
        .split_once("; HttpOnly")
        .expect("scripts cannot read it");

    for address in [&here, &there] {
        let head = format!("Host: {address}\r\nCookie: a=b; {cookie}");
        wait::until("the page shows the tenant", async || {
            let page = page_with(address, ("/fleet", &head)).await;
            assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
            page.contains(&tenant.namespace).then_some(())
        })
        .await;
        let stranger = format!("Host: evil.example\r\nCookie: {cookie}");
        let refused = page_with(address, ("/fleet", &stranger)).await;
        assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    }
    wait::until(
        "both pages name the replica that serves the tenant",
        async || {
            let mut rows = Vec::new();
            for address in [&here, &there] {
                let head = format!("Host: {address}\r\nCookie: {cookie}");
                let answer = page_with(address, ("/fleet.json", &head)).await;
                let (_, body) = answer.split_once("\r\n\r\n")?;
                let told: Value = serde_json::from_str(body).expect("it is JSON");
                rows.push((at(&told, "/replica"), at(&told, "/tenants/0")));
            }
            let [(_, first), (_, second)] = rows.as_slice() else {
                return None;
            };
            let owner = at(first, "/servedBy");
            let is_agreed = owner.is_string() && owner == at(second, "/servedBy");
            let mut rows = rows.iter();
            let is_right = rows.all(|(own, row)| at(row, "/servedHere") == (*own == owner));
            (is_agreed && is_right).then_some(())
        },
    )
    .await;
    let [here, there] = replicas;
    let log = here.stop().await + &there.stop().await;
    let (_, session) = cookie.split_once('=').expect("it has a value");
    for secret in [TOKEN, session] {
        assert!(!log.contains(secret), "{secret} is logged");
    }
}

/// Sends the form of the page as a page of this origin.
async fn sign_in(address: &str, (origin, token): (&str, &str)) -> String {
    let form = format!("token={token}");
    let length = form.len();
    let head = format!(
        "POST /fleet?state=Healthy HTTP/1.1\r\nHost: {address}\r\nOrigin: {origin}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{form}"
    );
    send(address, &head).await
}

pub async fn a_browser_shows_it_in_both_colour_schemes_and_filters(world: &'static World) {
    let stage = Stage::open(world, "fleet");
    let [berlin, lisbon, oslo] = stage.tenants(["berlin", "lisbon", "oslo"]).await;
    let binary = Binary::start(&stage, &[]);
    berlin.register().await;
    berlin.serve(&a_machine_deployment("workers")).await;
    lisbon.register().await;
    lisbon.serve(&a_machine_deployment("workers")).await;
    let broken = with_annotation(a_machine_deployment("broken"), (PROFILE, "osp-plan9"));
    lisbon.create(&broken).await;
    // Nothing listens there.
    let authority = oslo.worker.authority();
    let nowhere = fixtures::a_kubeconfig("https://127.0.0.1:1", &authority, "a-token");
    oslo.register_as(WORKER, &nowhere).await;
    berlin.says("Ready", "True", "Ready").await;
    oslo.says("Connected", "False", "Unreachable").await;
    let address = binary.admin_address().await;
    wait::until("the page shows all", async || {
        let told = page(&address, "/fleet.json").await;
        let states = ["Healthy", "NotReady", "Unreachable"];
        let is_told = |state: &&str| told.contains(&format!("\"state\": \"{state}\""));
        states.iter().all(is_told).then_some(())
    })
    .await;

    let url = format!("http://{address}/fleet");
    pictures(&url).await;
    let one = format!("{url}?tenant={}/worker", lisbon.namespace);
    keep(&one, WINDOWS[0], "fleet-page-tenant").await;
    let told = dom(&one, Scheme::Light).await;
    for part in [
        "osp-plan9",
        "SomeNotServed",
        "MachineDeployment kube-system/broken",
        "clusterDNS",
        "built in",
    ] {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
    let one = format!("/fleet?tenant={}/worker", lisbon.namespace);
    for path in ["/fleet", &one] {
        fits((&address, path)).await;
    }
    reloads_and_keeps_its_headings(&address).await;
    lisbon.annotate("broken", (PROFILE, HOSTILE)).await;
    wait::until("the page shows the hostile name", async || {
        let told = page(&address, "/fleet.json").await;
        told.contains(HOSTILE).then_some(())
    })
    .await;

    for scheme in [Scheme::Light, Scheme::Dark] {
        let page = dom(&url, scheme).await;
        for tenant in [&berlin, &lisbon, &oslo] {
            assert_eq!(shown(&page, tenant), Some(true), "{page}");
        }
        assert!(page.contains("&lt;img src=x"), "it is told: {page}");
        assert!(!page.contains("<img"), "it is text: {page}");
        assert!(page.contains("3</span> of 3 tenants"), "{page}");
        assert!(page.contains(" here)"), "the local time is shown: {page}");
    }
    for filter in [
        "q=BERLIN",
        "q=fleet&state=Healthy",
        "q=fleet&state=Healthy&sort=-for",
    ] {
        let page = dom(&format!("{url}?{filter}"), Scheme::Light).await;
        assert_eq!(shown(&page, &berlin), Some(true), "{filter}: {page}");
        assert_eq!(shown(&page, &lisbon), Some(false), "{filter}: {page}");
        assert_eq!(shown(&page, &oslo), Some(false), "{filter}: {page}");
        assert!(page.contains("1</span> of 3 tenants"), "{filter}: {page}");
    }
}

/// Returns true if a tenant's row can be seen; `None` if it has none.
fn shown(page: &str, tenant: &Tenant) -> Option<bool> {
    let (before, _) = page.split_once(&format!(">{}/worker</a></th>", tenant.namespace))?;
    let (_, row) = before.rsplit_once("<tr ")?;
    Some(!row.contains("hidden"))
}

/// No part of a page is beside a window, and nobody scrolls sideways.
async fn fits((address, path): (&str, &str)) {
    let answer = page(address, path).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let (_, html) = answer.split_once("\r\n\r\n").expect("it has a body");
    for window in WINDOWS {
        let beside = measured(html, window, OVERFLOW).await;
        assert_eq!(beside, "0", "{path} at {window:?}");
    }
}

/// A reload each minute, headings that stay when the page is scrolled, and states that a telephone
/// shows.
async fn reloads_and_keeps_its_headings(address: &str) {
    let [desk, _, telephone] = WINDOWS;
    for (path, expected) in [
        ("/fleet", "60000 reload"),
        ("/fleet?pause=1", "60000 undefined"),
    ] {
        let answer = page(address, path).await;
        let (_, html) = answer.split_once("\r\n\r\n").expect("it has a body");
        let html = html.replace("<main>", KEEP_THE_INTERVAL);
        assert_eq!(measured(&html, desk, RELOAD).await, expected, "{path}");
    }
    let answer = page(address, "/fleet").await;
    let (_, html) = answer.split_once("\r\n\r\n").expect("it has a body");
    let heading = measured(html, desk, HEADING).await;
    assert_eq!(heading, "0", "the heading is at the top of the window");
    assert_eq!(measured(html, telephone, STATES).await, "true");
}

/// Pictures in each window, and in both schemes.
async fn pictures(url: &str) {
    let names = ["fleet-page", "fleet-page-768", "fleet-page-390"];
    let mut light = Vec::new();
    for (window, name) in WINDOWS.into_iter().zip(names) {
        light.push(keep(url, window, name).await);
    }
    let dark = picture(url, (Scheme::Dark, WINDOWS[0]), "fleet-page-dark").await;
    assert_ne!(light.first(), Some(&dark), "the schemes look different");
}

/// A picture of a page; `UPDATE_DOCS=1` keeps it for the documentation.
async fn keep(url: &str, window: Window, name: &str) -> Vec<u8> {
    let picture = picture(url, (Scheme::Light, window), name).await;
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        let kept = std::fs::write(docs.join(format!("{name}.png")), &picture);
        kept.expect("the documentation can be written");
    }
    picture
}

async fn picture(url: &str, how: (Scheme, Window), name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("{name}.png"));
    screenshot(url, how, &path).await;
    let picture = std::fs::read(&path).expect("the browser has written it");
    assert!(picture.starts_with(b"\x89PNG"), "{}", path.display());
    let size = picture.len();
    assert!((5_000..PICTURE_BYTES_MAX).contains(&size), "{size} bytes");
    picture
}

/// What stands at a place of a document; null where nothing does.
fn at(document: &Value, pointer: &str) -> Value {
    document.pointer(pointer).cloned().unwrap_or_default()
}
