//! The overlay for a KKP seed.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn in_a_kkp_seed_secrets_of_one_name_can_be_read_and_the_process_is_ready() {
    let seed = a_cluster("seed").await;
    install(&seed, "kkp-seed").await;
    let account = format!("--as=system:serviceaccount:{MANAGER}:{MANAGER}");
    let may = ["auth", "can-i", "--list", "-n", "default", &account];
    let rights = kubectl(&seed, &may).await;
    let of_secrets: Vec<_> = rights
        .lines()
        .filter(|it| it.starts_with("secrets"))
        .collect();
    assert_eq!(of_secrets.len(), 1, "{rights}");
    let is_of_one_name = of_secrets
        .iter()
        .all(|it| it.contains("[operatingsystemmanager-kubeconfig]"));
    assert!(is_of_one_name, "{rights}");
    drop(start(&seed, &[]).await);
}
