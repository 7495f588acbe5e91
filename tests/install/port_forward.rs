//! `kubectl port-forward` to the Deployment, as the page of the fleet page says. A program with the
//! kubelet's own code for streams stands in for the kubelet.

use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::*;

const TOKEN: &str = "t0ken-of-a-port-forward";

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_signs_in_through_a_forwarded_port() {
    let management = a_cluster("management").await;
    install(&management, "base").await;
    let token = NamedTempFile::new().expect("there is room for a file");
    std::fs::write(token.path(), TOKEN).expect("the file is ours");
    let path = token.path().to_str().expect("our paths are text");
    let process = start(&management, &["--fleet-page-token-file", path]).await;
    let manager = admin_port(&management).await;
    let (kubelet, port) = a_kubelet(&format!("8080=127.0.0.1:{manager}")).await;
    run_as_a_pod(&management, port).await;
    let (forwarding, forwarded) = forward(&management).await;
    let host = format!("localhost:{forwarded}");

    let asked = send(
        forwarded,
        &format!("GET /fleet HTTP/1.1\r\nHost: {host}"),
        "",
    )
    .await;
    assert!(asked.starts_with("HTTP/1.1 401 "), "{asked}");
    let form = format!(
        "POST /fleet HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n\
         Content-Type: application/x-www-form-urlencoded"
    );
    let signed = send(forwarded, &form, &format!("token={TOKEN}")).await;
    assert!(signed.starts_with("HTTP/1.1 303 "), "{signed}");
    let cookie = signed.split_once("set-cookie: ").map(|(_, rest)| rest);
    let cookie = cookie.and_then(|rest| rest.split(';').next());
    let cookie = cookie.expect("it has a session");
    let page = format!("GET /fleet HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}");
    let page = send(forwarded, &page, "").await;
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    assert!(
        page.contains("No worker cluster is registered here"),
        "{page}"
    );
    let program =
        format!("GET /fleet.json HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}");
    let told = send(forwarded, &program, "").await;
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    drop((forwarding, kubelet, process));
}

/// The port of the admin pages, as the process logs it.
async fn admin_port(cluster: &ControlPlane) -> u16 {
    let log = log_of(cluster, MANAGER);
    let found = async {
        loop {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let address = text.split_once("\"address\":\"").map(|(_, rest)| rest);
            let address = address.and_then(|rest| rest.split('"').next());
            let port = address.and_then(|it| it.rsplit(':').next()?.parse().ok());
            if let Some(port) = port {
                break port;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(DEADLINE, found).await;
    found.expect("the process logs where its pages are")
}

/// Starts what stands in for a kubelet, and hands out the port that it listens on.
async fn a_kubelet(forwards: &str) -> (Child, u16) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(program.join("target/consumers/go/kubelet-streams"));
    command.arg(forwards).stdin(Stdio::piped());
    let (process, line) = first_line(&mut command).await;
    let port = line.rsplit(':').next().and_then(|port| port.parse().ok());
    (process, port.expect("it prints its address"))
}

/// Runs `kubectl port-forward` as the page has it, but from a port that is free.
async fn forward(cluster: &ControlPlane) -> (Child, u16) {
    let mut command = Command::new(cluster.kubectl());
    command
        .arg("--kubeconfig")
        .arg(cluster.folder().join("administrator.kubeconfig"))
        .args(["-n", MANAGER, "port-forward"])
        .args(["deployment/operating-system-manager", ":8080"]);
    let (process, line) = first_line(&mut command).await;
    let from = line.strip_prefix("Forwarding from 127.0.0.1:");
    let port = from.and_then(|rest| rest.strip_suffix(" -> 8080")?.parse().ok());
    (process, port.expect(&line))
}

/// Starts a program, and waits for the first line that it prints.
async fn first_line(command: &mut Command) -> (Child, String) {
    let mut process = command
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect(".ci/consumers and .ci/go-programs have built the programs");
    let output = process.stdout.as_mut().expect("it is piped");
    let mut line = String::new();
    let mut output = BufReader::new(output);
    let read = tokio::time::timeout(DEADLINE, output.read_line(&mut line)).await;
    read.expect("it says something")
        .expect("its output is a pipe");
    (process, line.trim_end().to_owned())
}

/// What a scheduler and a kubelet write: a pod of the Deployment runs on a node, whose kubelet
/// listens on this port.
async fn run_as_a_pod(cluster: &ControlPlane, port: u16) {
    let template = deployment(cluster, MANAGER, MANAGER).await.spec.template;
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": template.metadata, "spec": template.spec,
    });
    pod["metadata"]["name"] = json!("osm-0");
    pod["metadata"]["namespace"] = json!(MANAGER);
    pod["spec"]["nodeName"] = json!("here");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}});
    for object in [node, pod] {
        let applied = cluster.apply_yaml(&object.to_string()).await;
        applied.expect("the object is taken");
    }
    let reached = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    let runs = json!({"status": {"phase": "Running"}});
    for (object, status) in [("node/here", reached), ("pod/osm-0", runs)] {
        let status = status.to_string();
        let patch = ["patch", object, "-n", MANAGER, "--subresource=status"];
        kubectl(
            cluster,
            &[&patch[..], &["--type=merge", "-p", &status]].concat(),
        )
        .await;
    }
}

/// Sends a request through a forwarded port, and hands out the answer.
async fn send(port: u16, head: &str, body: &str) -> String {
    let connected = TcpStream::connect(("127.0.0.1", port)).await;
    let mut stream = connected.expect("kubectl listens");
    let length = body.len();
    let request = format!("{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    let sent = stream.write_all(request.as_bytes()).await;
    sent.expect("it is sent");
    let mut answer = String::new();
    let read = tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await;
    read.expect("it is answered").expect("the answer is text");
    answer
}
