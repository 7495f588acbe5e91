//! What only this server can do: faults, compaction, audits, outages.

use std::time::Duration;

use crate::tls_client::tls_client;
use fake_cluster::{Cluster, Fault, Matcher, Options, Revisions, User, Verb, object};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams},
};
use tokio::time::{Instant, timeout};

fn a_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

fn maps(client: kube::Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

async fn made(maps: &Api<ConfigMap>, name: &str) -> ConfigMap {
    let answer = maps.create(&PostParams::default(), &a_map(name)).await;
    answer.expect("it is created")
}

fn code<T>(answer: kube::Result<T>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

#[tokio::test(start_paused = true)]
async fn old_versions_expire_with_a_compaction() {
    let cluster = Cluster::default();
    let api = maps(cluster.client());
    let first = made(&api, "a").await;
    made(&api, "b").await;
    let page = api.list(&ListParams::default().limit(1)).await.unwrap();
    cluster.skip_revisions(5);
    cluster.compact();
    let next = ListParams::default()
        .limit(1)
        .continue_token(&page.metadata.continue_.unwrap());
    assert_eq!(code(api.list(&next).await), 410);
    let version = first.metadata.resource_version.unwrap();
    let mut events = api
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    let event = events.try_next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Error(status) if status.code == 410));
}

/// The names that a watch from this version delivers within an hour, or the code of its error.
async fn delivered(api: &Api<ConfigMap>, version: &str) -> Vec<String> {
    let params = WatchParams::default().disable_bookmarks();
    let events = api.watch(&params, version).await.expect("it begins");
    let names = events.map(|event| match event.expect("it can be read") {
        WatchEvent::Added(map) => map.metadata.name.expect("it has a name"),
        WatchEvent::Error(status) => status.code.to_string(),
        other => format!("{other:?}"),
    });
    names.collect().await
}

#[tokio::test(start_paused = true)]
async fn a_restored_cluster_has_its_old_objects_and_old_or_higher_versions() {
    for revisions in [Revisions::GoBack, Revisions::AreBumped] {
        let cluster = Cluster::default();
        let api = maps(cluster.client());
        let kept = made(&api, "kept").await;
        let backup = cluster.backup();
        let revision = cluster.revision();
        cluster.skip_revisions(100);
        let lost = made(&api, "lost").await;
        api.delete("kept", &DeleteParams::default()).await.unwrap();
        let watch = api.watch(&WatchParams::default(), "0").await.unwrap();
        cluster.restore(&backup, revisions);
        let ends = watch.collect::<Vec<_>>().await;
        assert!(ends.last().unwrap().is_err(), "its connection breaks");
        assert_eq!(api.get("kept").await.unwrap(), kept);
        assert_eq!(code(api.get("lost").await), 404);
        let after = made(&api, "made").await;
        let numbers = [&lost, &after].map(|map| {
            let version = map.metadata.resource_version.as_ref().unwrap();
            version.parse::<u64>().unwrap()
        });
        let from_before = delivered(&api, &numbers[0].to_string()).await;
        if revisions == Revisions::GoBack {
            assert_eq!(numbers[1], revision + 1);
            assert_eq!(from_before, [""; 0], "it is accepted, and silent");
            assert_eq!(delivered(&api, &revision.to_string()).await, ["made"]);
        } else {
            assert!(numbers[1] > numbers[0]);
            assert_eq!(from_before, ["410"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn faults_hit_as_often_as_they_are_asked_to() {
    let cluster = Cluster::default();
    let api = maps(cluster.client());
    let fault = Fault::overloaded(Duration::from_secs(1));
    cluster.inject_times(Matcher::on(&[Verb::Get], "configmaps"), fault, 2);
    assert_eq!(code(api.get("a").await), 429);
    assert_eq!(code(api.get("a").await), 429);
    assert_eq!(code(api.get("a").await), 404);
    let second = Matcher {
        nth: Some(2),
        ..Matcher::on(&[Verb::Create], "configmaps")
    };
    cluster.inject(second, Fault::ConnectionResetAfter);
    made(&api, "a").await;
    let reset = api.create(&PostParams::default(), &a_map("b")).await;
    assert_eq!(code(reset), 0);
    let executed = cluster.get(object("configmaps", "default", "b"));
    assert!(executed.is_some(), "it was executed");
    cluster.inject(Matcher::any(), Fault::Hang);
    let answer = timeout(Duration::from_hours(1), api.get("a")).await;
    assert!(answer.is_err(), "it hangs");
    cluster.clear_faults();
    cluster.inject(Matcher::any(), Fault::Delay(Duration::from_secs(7)));
    let start = Instant::now();
    api.get("a").await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_break_lose_events_and_end_in_time() {
    let cluster = Cluster::default();
    let api = maps(cluster.client());
    let matcher = Matcher::on(&[Verb::Watch], "configmaps");
    let lost = cluster.inject(
        matcher.clone(),
        Fault::DropWatchEvents(std::sync::Arc::new(|o| o["metadata"]["name"] == "lost")),
    );
    let params = WatchParams::default().timeout(10).disable_bookmarks();
    let version = cluster.revision().to_string();
    let events = api.watch(&params, &version).await.unwrap();
    for name in ["lost", "kept"] {
        made(&api, name).await;
    }
    let start = Instant::now();
    let events: Vec<_> = events.try_collect().await.unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    cluster.clear_fault(lost);
    cluster.inject(matcher, Fault::CloseMidWatch { events: 1 });
    let events = api.watch(&params, "0").await.unwrap();
    assert!(events.try_collect::<Vec<_>>().await.is_err());
}

#[tokio::test]
async fn an_outage_keeps_the_state_and_the_port() {
    let cluster = Cluster::default();
    let front = cluster.serve_tls().await.unwrap();
    let admin = User::admin();
    for kubeconfig in [
        front.kubeconfig(&admin),
        front.kubeconfig_with_certificate(&admin),
    ] {
        let api = maps(tls_client(&kubeconfig).await);
        made(&api, "a").await;
        front.stop().await;
        assert!(api.get("a").await.is_err());
        front.start().await.unwrap();
        api.delete("a", &DeleteParams::default()).await.unwrap();
    }
    let stranger = Cluster::new(Options {
        name: "other".to_owned(),
        ..Options::default()
    });
    let foreign = stranger.kubeconfig_at(&front.url(), &admin);
    assert!(
        maps(tls_client(&foreign).await).get("a").await.is_err(),
        "another CA"
    );
}
