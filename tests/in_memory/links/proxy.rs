//! The operator's proxy between the manager and worker clusters.

use loadtest::egress_proxy::{Answer as ProxyAnswer, EgressProxy as Proxy};
use osm::tenant::egress::EgressProxy;

use super::*;

/// Rules that lead through this proxy.
fn through(proxy: &Proxy, exceptions: &[&str]) -> EgressProxy {
    EgressProxy {
        url: proxy.url().parse().expect("a URL"),
        credentials_file: None,
        exceptions: exceptions
            .iter()
            .map(|it| it.parse().expect("an exception"))
            .collect(),
    }
}

async fn a_proxy(answer: ProxyAnswer) -> Proxy {
    Proxy::start(answer).await.expect("it starts")
}

/// A server that kubeconfigs name `localhost`.
async fn a_named_server() -> Hostile {
    let mut server = Hostile::start("h2", || Response::new(whole("{}"))).await;
    let port = server.address.rsplit(':').next().expect("a port");
    let named = format!("localhost:{port}");
    server.kubeconfig = server.kubeconfig.replace(&server.address, &named).replace(
        "    certificate-authority-data",
        "    tls-server-name: 127.0.0.1\n    certificate-authority-data",
    );
    server
}

async fn call(server: &Hostile) -> Result<String, String> {
    let answer = server.client().request_text(get("/version")).await;
    answer.map_err(|error| chain(&error).to_string())
}

#[tokio::test]
async fn a_proxy_is_asked_for_the_checked_address_of_a_name() {
    let (mut server, proxy) = (
        a_named_server().await,
        a_proxy(ProxyAnswer::Connected).await,
    );
    server.rules.egress_proxy = Some(Arc::new(through(&proxy, &["10.0.0.0/8", "worker.example"])));
    assert_eq!(call(&server).await.as_deref(), Ok("{}"));
    let port = server.address.rsplit(':').next().expect("a port");
    let of = |address: &str| {
        format!("CONNECT {address}:{port} HTTP/1.1\r\nHost: {address}:{port}\r\n\r\n")
    };
    let seen = proxy.requests();
    let last = seen.last().expect("it was asked");
    assert!([of("127.0.0.1"), of("[::1]")].contains(last), "{last}");
}

#[tokio::test]
async fn exceptions_are_reached_without_the_proxy() {
    let proxy = a_proxy(ProxyAnswer::Connected).await;
    let literal = Hostile::start("h2", || Response::new(whole("{}"))).await;
    let named = a_named_server().await;
    let mut servers = [literal, named];
    for (server, exceptions) in [
        (0, &["127.0.0.0/8"][..]),
        (1, &["localhost"][..]),
        (1, &["127.0.0.0/8", "::1"][..]),
    ] {
        let server = &mut servers[server];
        server.rules.egress_proxy = Some(Arc::new(through(&proxy, exceptions)));
        assert_eq!(call(server).await.as_deref(), Ok("{}"), "{exceptions:?}");
    }
    assert_eq!(proxy.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn what_may_not_be_reached_is_not_named_to_the_proxy() {
    let (mut server, proxy) = (
        a_named_server().await,
        a_proxy(ProxyAnswer::Connected).await,
    );
    server.rules.egress_proxy = Some(Arc::new(through(&proxy, &[])));
    server.rules.addresses.denied = vec!["127.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()];
    let said = call(&server).await.expect_err("it is denied");
    assert!(said.contains("the operator denies its range"), "{said}");
    assert_eq!(proxy.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn the_proxys_password_is_read_at_each_connection() {
    let (mut server, proxy) = (
        a_named_server().await,
        a_proxy(ProxyAnswer::Connected).await,
    );
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut rules = through(&proxy, &[]);
    rules.credentials_file = Some(file.path().to_owned());
    server.rules.egress_proxy = Some(Arc::new(rules));
    for line in ["osm:first\n", "osm:second"] {
        std::fs::write(file.path(), line).expect("the file is there");
        assert_eq!(call(&server).await.as_deref(), Ok("{}"));
        let wanted = format!(
            "Proxy-Authorization: Basic {}\r\n",
            STANDARD.encode(line.trim_ascii())
        );
        let seen = proxy.requests();
        let last = seen.last().expect("it was asked");
        assert!(last.contains(&wanted), "{last}");
    }
    std::fs::write(file.path(), "hunter2").expect("the file is there");
    let said = call(&server)
        .await
        .expect_err("that is no user and password");
    assert!(said.contains("is not a line `user:password`"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[tokio::test]
async fn operators_read_that_the_proxy_refuses_and_tenants_do_not() {
    let refusing = a_proxy(ProxyAnswer::Unauthorized).await;
    let mut server = a_named_server().await;
    server.rules.egress_proxy = Some(Arc::new(through(&refusing, &[])));
    let said = call(&server).await.expect_err("it is refused");
    let proxy = format!(
        "the egress proxy {} gives no connection to ",
        refusing.url()
    );
    assert!(said.contains(&proxy), "{said}");
    assert!(said.contains("proxy authorization required"), "{said}");
    let tenant = client(server.transport_for(Audience::Tenant, TIMEOUT), TIMEOUT);
    let answer = tenant.request_text(get("/version")).await;
    let said = chain(&answer.expect_err("it is refused")).to_string();
    assert!(!said.contains("proxy"), "{said}");
}
