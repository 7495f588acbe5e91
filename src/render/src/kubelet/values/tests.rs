//! Tests that values are accepted if a kubelet accepts them, and otherwise refused with the reason.

use super::*;

#[test]
fn quantities_are_those_of_go() {
    let check = |expected: Option<Sign>, texts: &[&str]| {
        for text in texts {
            assert_eq!(quantity(text), expected, "{text:?}");
        }
    };
    let positive = [
        "1", "+1", "200m", "1Gi", "0.5", ".5", "5.", "1.5Gi", "100M", "1e3", "1E-3", "1Pi", "05k",
        "9n",
    ];
    check(Some(Sign::Positive), &positive);
    check(Some(Sign::Zero), &["0", "0Mi", "-0", "0.00", "Mi", "."]);
    check(Some(Sign::Negative), &["-1", "-0.1Gi", "-1Ei"]);
    check(Some(Sign::TooLarge), &["2E", "1025Ti", "1e16"]);
    // What is longer than any, or has such an exponent, is not read at all.
    check(None, &["1000000000000000000000000", "1e19", "1e-19"]);
    check(
        None,
        &[
            "", "x", "1 Gi", "1GI", "1gi", "1KB", "1K", "100%", "1e", "1e1.5", "1.2.3", "--1",
            "1mi", "١",
        ],
    );
}

#[test]
fn spaces_around_the_parts_of_a_pair_are_removed() {
    let read = |pairs: BTreeMap<String, String>| {
        let pairs = pairs.into_iter();
        pairs
            .map(|(name, amount)| format!("{name}:{amount}"))
            .collect::<Vec<_>>()
    };
    let check = |found: Result<BTreeMap<String, String>, String>, expected: &[&str]| {
        assert_eq!(read(found.unwrap()), expected);
    };
    check(
        reserved("cpu=200m, memory=300Mi"),
        &["cpu:200m", "memory:300Mi"],
    );
    check(
        reserved(" cpu = 1 ,\n ephemeral-storage=1Gi,"),
        &["cpu:1", "ephemeral-storage:1Gi"],
    );
    check(reserved("pid=0,pid=1000"), &["pid:1000"]);
    check(
        thresholds("memory.available<100Mi, nodefs.available<10%,imagefs.inodesFree < 0%"),
        &[
            "imagefs.inodesFree:0%",
            "memory.available:100Mi",
            "nodefs.available:10%",
        ],
    );
    for empty in ["", " ", ","] {
        check(reserved(empty), &[]);
        check(thresholds(empty), &[]);
    }
}

#[test]
fn values_that_no_kubelet_accepts_are_refused_with_the_reason() {
    let check = |found: Result<BTreeMap<String, String>, String>, expected: &str| {
        assert_eq!(found.unwrap_err(), expected);
    };
    check(
        reserved("cpu: 200m"),
        "\"cpu: 200m\" is not a pair such as `cpu=200m`",
    );
    check(
        reserved("gpu=1"),
        "a kubelet cannot reserve \"gpu\", only cpu, ephemeral-storage, memory, pid",
    );
    check(
        reserved("cpu=x"),
        "cpu: \"x\" is not a quantity such as 200m or 1Gi",
    );
    check(
        reserved("cpu=1,memory="),
        "memory: \"\" is not a quantity such as 200m or 1Gi",
    );
    check(reserved("cpu=-1"), "cpu: -1 must not be negative");
    check(
        thresholds("memory.available=100Mi"),
        "\"memory.available=100Mi\" is not a pair such as `memory.available<100Mi`",
    );
    let signals = SIGNALS.join(", ");
    check(
        thresholds("memory<1Gi"),
        &format!("a kubelet has no eviction signal \"memory\", only {signals}"),
    );
    check(
        thresholds("pid.available<x%"),
        "pid.available: \"x%\" is not a percentage",
    );
    check(
        thresholds("memory.available<101%"),
        "memory.available: 101% must be between 0% and 100%",
    );
    check(
        thresholds("memory.available<0"),
        "memory.available: 0 must be positive",
    );
    check(
        thresholds("memory.available<100MB"),
        "memory.available: \"100MB\" is neither a quantity such as 100Mi nor a percentage",
    );
    let refused = [
        (
            non_negative_integer("maxPods", "-1").map(drop),
            "-1 must not be negative",
        ),
        (
            percent("p", "101").map(drop),
            "101 must be between 0 and 100",
        ),
        (percent("p", "-1").map(drop), "-1 must be between 0 and 100"),
        (
            non_negative_age("a", "-1m").map(drop),
            "-1m0s must not be negative",
        ),
        (log_files("1").map(drop), "1 must be greater than 1"),
        (
            log_size("1GB").map(drop),
            "\"1GB\" is not a quantity such as 100Mi",
        ),
    ];
    for (found, expected) in refused {
        assert_eq!(found, Err(expected.to_owned()));
    }
    assert!(log_size("-1").is_ok() && log_size("").is_ok() && log_files("").is_ok());
}
