//! What the answer to a token request can do to a kubeconfig.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{
    super::renewal::{NotRenewed, ServiceAccountName, with_token},
    *,
};

fn token_of(user: &str, number: u32) -> String {
    let claims = format!(r#"{{"iss":"kubernetes","sub":"{user}","number":{number}}}"#);
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
}

fn renewed(before: &str, token: &str) -> Result<String, NotRenewed> {
    let (before, token) = (SecretText::new(before).to_bytes(), SecretText::new(token));
    let rules = AccessRules::default();
    let access = ClusterAccess::parse(before.expose(), &rules).unwrap();
    let renewed = with_token((&before, &access), &token, &rules)?;
    Ok(String::from_utf8(renewed.expose().to_vec()).unwrap())
}

#[test]
fn a_kubeconfig_gets_another_token_of_the_same_user_and_nothing_else() {
    let (first, second) = (token_of("osm", 1), token_of("osm", 2));
    let own = with(a_kubeconfig(&a_pki()), "/users/0/user/token", json!(first));
    let before = format!("# ours\n{}", serde_json::to_string_pretty(&own).unwrap());
    let after = renewed(&before, &second);
    assert_eq!(after, Ok(before.replace(&first, &second)));
    let escaped = before.replace(&first, &first.replacen('e', "\\u0065", 1));
    // A comment that has it changes nothing.
    for escaped in [format!("# {first}\n{escaped}"), escaped] {
        assert_eq!(renewed(&escaped, &second), Err(NotRenewed::InPieces));
    }
    let elsewhere = format!("{second}\"}}}}],\"clusters\":[],\"x\":[{{\"y\":{{\"z\":\"");
    let escaped = second.replacen('e', "\\u0065", 1);
    let another = token_of("another", 2);
    for token in [&elsewhere, &escaped, &another, "", "a", "no token"] {
        let refused = renewed(&before, token);
        assert_eq!(refused, Err(NotRenewed::NotForTheSameUser), "{token}");
    }
}

#[test]
fn a_token_that_stands_in_many_places_does_not_make_a_kubeconfig_grow() {
    let (first, second) = (token_of("osm", 1), token_of("osm", 2_000_000));
    let own = with(a_kubeconfig(&a_pki()), "/users/0/user/token", json!(first));
    let repeated = format!("# {first}\n").repeat(100);
    let before = format!("{}\n{repeated}", serde_json::to_string(&own).unwrap());
    let after = renewed(&before, &second).unwrap();
    assert!(after.len() - before.len() < 8 * second.len());
}

#[test]
fn the_account_is_in_the_name_of_the_user() {
    let of = |user: &str| ServiceAccountName::of_user(user).map(|it| (it.namespace, it.name));
    let (namespace, name) = ("kube-system".to_owned(), "osm".to_owned());
    assert_eq!(
        of("system:serviceaccount:kube-system:osm"),
        Some((namespace, name))
    );
    assert_eq!(of("operating-system-manager"), None);
}
