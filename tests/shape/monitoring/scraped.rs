//! What alerts and panels ask for is scraped where the manifests are applied as they are.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{alerts, chain, read};

/// The certificate is there sooner, unless it never is.
const DEADLINE: Duration = Duration::from_secs(30);

/// The process, the webhooks and the monitors, as kustomize puts them together.
fn objects() -> Vec<Value> {
    let folder = "manifests/kustomize";
    let labels: Value = serde_saphyr::from_str(&read(&format!("{folder}/base/kustomization.yaml")))
        .expect("it is YAML");
    let labels = &labels["labels"][0]["pairs"];
    let mut objects = Vec::new();
    for (file, labels) in [
        ("base/deployment.yaml", Some(labels)),
        ("base/service.yaml", Some(labels)),
        ("components/webhook/deployment.yaml", None),
        ("components/webhook/around.yaml", None),
        ("components/service-monitor/service-monitor.yaml", None),
    ] {
        let text = read(&format!("{folder}/{file}"));
        let found: Vec<Value> = serde_saphyr::from_multiple(&text).expect("it is YAML");
        objects.extend(found.into_iter().map(|mut object| {
            if let Some(labels) = labels {
                object["metadata"]["labels"] = labels.clone();
            }
            object
        }));
    }
    objects
}

#[test]
fn each_process_is_scraped_at_the_port_where_it_shows_its_metrics() {
    chain::assert_scraped(&objects());
}

/// The page of metrics of the webhooks, started as their Deployment says, but with a certificate
/// from a folder and free ports.
#[expect(
    clippy::disallowed_methods,
    reason = "the program under test is started"
)]
fn page_of_the_webhooks() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(["webhook".to_owned()]).expect("a certificate");
    for (file, text) in [
        ("tls.crt", made.cert.pem()),
        ("tls.key", made.signing_key.serialize_pem()),
    ] {
        std::fs::write(folder.path().join(file), text).expect("the folder is ours");
    }
    let arguments = chain::arguments(&objects());
    let arguments = arguments
        .get("operating-system-manager-webhook")
        .expect("they are deployed");
    let on_free_ports = arguments.iter().map(|it| match it.split_once("0.0.0.0:") {
        Some((flag, _)) => format!("{flag}127.0.0.1:0"),
        None => it.clone(),
    });
    let mut process = Command::new(env!("CARGO_BIN_EXE_osm"))
        .args(on_free_ports)
        .arg("--certificate-folder")
        .arg(folder.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built with this test");
    let log = process.stderr.take().expect("it is piped");
    let mut addresses = BufReader::new(log).lines().filter_map(|line| {
        let line = line.ok()?;
        let (_, rest) = line.split_once("\"admin_address\":\"")?;
        Some(rest.split_once('"')?.0.to_owned())
    });
    let address = addresses.next().expect("it says where it listens");
    let (begun, mut page) = (Instant::now(), String::new());
    while !page.contains("osm_admission_certificate_end") && begun.elapsed() < DEADLINE {
        page.clear();
        let mut stream = TcpStream::connect(&address).expect("it listens");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        stream.read_to_string(&mut page).expect("it answers");
    }
    process.kill().expect("it runs");
    process.wait().expect("it ends");
    page
}

#[test]
fn the_port_of_the_webhooks_answers_with_what_their_alert_asks_for() {
    let alert = alerts()["OsmWebhookCertificateEnds"]["expr"].to_string();
    let metric = "osm_admission_certificate_end_timestamp_seconds";
    assert!(alert.contains(metric), "{alert}");
    let page = page_of_the_webhooks();
    let shown = page.lines().any(|line| line.starts_with(metric));
    assert!(shown, "{page}");
}
