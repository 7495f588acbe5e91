use super::*;

const MINUTE: i64 = 60;

fn tenant(number: usize) -> TenantId {
    TenantId::new(format!("tenant-{number}").as_str())
}

fn tenants() -> impl Iterator<Item = TenantId> {
    (0..300).map(tenant)
}

fn view(instances: &[&str]) -> View {
    View(instances.iter().map(|it| Holder::parse(it)).collect())
}

/// Creates the crash of a replica that served all tenants, at `at`.
fn crash(life: &str, at: i64) -> Incident {
    Incident::crash(&Holder::parse(life), &view(&["a"]), at)
}

fn crashes(of: &[Incident]) -> Crashes {
    let mut crashes = Crashes::default();
    for crash in of {
        crashes.insert(crash.clone());
    }
    crashes
}

fn suspects(crashes: &Crashes, now: i64) -> Vec<TenantId> {
    tenants()
        .filter(|it| crashes.suspicion(it, now).is_some())
        .collect()
}

#[test]
fn two_crashes_within_ten_minutes_make_suspects_of_those_whom_both_replicas_had() {
    let once = crashes(&[crash("a_1", 0)]);
    assert_eq!(suspects(&once, 1), [], "a replica may crash");
    let twice = crashes(&[crash("a_1", 0), crash("a_2", 10 * MINUTE - 1)]);
    assert_eq!(suspects(&twice, 10 * MINUTE).len(), 300);
    let rarely = crashes(&[crash("a_1", 0), crash("a_2", 10 * MINUTE)]);
    assert_eq!(suspects(&rarely, 10 * MINUTE), []);
    // b takes a part of what a had, and c keeps its own.
    let [first, second] = [&["a", "b", "c"][..], &["b", "c"]].map(view);
    let of_b = crashes(&[
        Incident::crash(&Holder::parse("a_1"), &first, 0),
        Incident::crash(&Holder::parse("b_1"), &second, MINUTE),
    ]);
    let found = suspects(&of_b, MINUTE);
    assert!((30..=70).contains(&found.len()), "{}", found.len());
    let had = |me: &str, all: &View, tenant: &TenantId| {
        let all = all.0.iter().map(|it| it.instance.clone()).collect();
        wins(me, &all, tenant)
    };
    for tenant in tenants() {
        let both = had("a", &first, &tenant) && had("b", &second, &tenant);
        assert_eq!(found.contains(&tenant), both, "{tenant}");
    }
}

#[test]
fn a_crash_is_counted_once_however_many_replicas_report_it() {
    let mut known = crashes(&[crash("a_1", 0)]);
    known.extend(crashes(&[crash("a_1", 1), crash("a_1", 2)]));
    assert_eq!(suspects(&known, 3), []);
}

#[test]
fn a_crash_during_a_trial_leaves_those_who_were_tried() {
    let low = Span {
        last: u32::MAX / 2,
        ..Span::ALL
    };
    let (of, on) = (Span::ALL, low);
    let two = [crash("a_1", 0), crash("a_2", MINUTE)];
    let third = crash("a_3", 2 * MINUTE).during(Some(Trial { of, on }));
    let known = crashes(&[two[0].clone(), two[1].clone(), third.clone()]);
    for tenant in tenants() {
        let found = known.suspicion(&tenant, 3 * MINUTE).map(|it| it.span);
        let expected = low.contains(hash(&tenant)).then_some(low);
        assert_eq!(found, expected, "{tenant}");
    }
    // Surviving a trial clears the tenants that were tried.
    let mut survived = crashes(&two);
    let holder = Holder::parse("a_3");
    let incident = Incident::crash(&holder, &view(&["a"]), 2 * MINUTE);
    survived.insert(incident.survived(Trial { of, on }));
    for tenant in tenants() {
        let is_left = survived.suspicion(&tenant, 3 * MINUTE).is_some();
        assert_ne!(is_left, low.contains(hash(&tenant)), "{tenant}");
    }
    // A trial of other tenants says nothing about these.
    let other = crash("a_4", 3 * MINUTE).during(Some(Trial {
        of: Span { first: 1, ..low },
        on: low,
    }));
    let mut more = known.clone();
    more.insert(other);
    assert_eq!(suspects(&more, 3 * MINUTE), suspects(&known, 3 * MINUTE));
    // Neither does a crash of a replica that had other tenants.
    let mut elsewhere = crashes(&two);
    let holder = Holder::parse("b_1");
    let elsewhere_too = Incident::crash(&holder, &view(&["a", "b"]), 2 * MINUTE);
    elsewhere.insert(elsewhere_too.during(Some(Trial { of, on })));
    let of_a = tenants().filter(|it| wins("a", &["a".into(), "b".into()].into(), it));
    for tenant in of_a {
        let found = elsewhere.suspicion(&tenant, 3 * MINUTE).map(|it| it.span);
        assert_eq!(found, Some(Span::ALL), "{tenant}");
    }
    // Neither does a crash outside of a trial: suspects were held back then.
    let mut before = known.clone();
    before.insert(crash("a_4", 3 * MINUTE));
    assert_eq!(suspects(&before, 3 * MINUTE), suspects(&known, 3 * MINUTE));
}

#[test]
fn a_suspect_that_is_alone_waits_twice_as_long_after_each_crash_and_is_forgotten_in_the_end() {
    let alone = Trial {
        of: Span::ALL,
        on: Span::ALL,
    };
    let mut known = crashes(&[crash("a_1", 0), crash("a_2", MINUTE)]);
    let mut last = MINUTE;
    for (life, minutes) in [0, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
        let found = known.suspicion(&tenant(1), last).expect("it is suspect");
        assert_eq!(found.due(), last + minutes * MINUTE);
        last = found.due() + 10;
        known.insert(crash(&format!("a_{}", life + 3), last).during(Some(alone)));
    }
    let found = known.suspicion(&tenant(1), last + 70 * MINUTE - 1);
    assert!(found.is_some());
    assert_eq!(known.suspicion(&tenant(1), last + 70 * MINUTE), None);
}

#[test]
fn crashes_are_forgotten_after_a_day_and_the_earliest_where_there_are_many() {
    let mut known = crashes(&[crash("a_1", 0), crash("a_2", MINUTE)]);
    known.prune(KEPT_SECONDS);
    assert_eq!(known, crashes(&[crash("a_2", MINUTE)]));
    // Recorded by a clock that was ahead: nobody waits for them that long.
    let ahead = RELATED_SECONDS + MINUTE + 1;
    let mut known = crashes(&[crash("a_2", ahead), crash("a_3", ahead - 1)]);
    known.prune(MINUTE);
    assert_eq!(known, crashes(&[crash("a_3", ahead - 1)]));
    let many = (0..100).map(|number| crash(&format!("a_{number}"), number));
    let mut known = crashes(&many.collect::<Vec<_>>());
    known.prune(100);
    assert_eq!(known.0.len(), KEPT_MAX);
    assert!(known.0.first().is_some_and(|it| it.at == 68));
}

#[test]
fn a_record_is_read_as_it_was_written_and_a_strange_one_says_nothing() {
    assert_eq!(Record::default().text(), None);
    let (of, on) = (Span::ALL, Span { first: 7, last: 9 });
    let trial = Some(Trial { of, on });
    let record = Record {
        crashes: crashes(&[crash("a_1", 5).during(trial), crash("b_1", 6)]),
        trial,
    };
    let text = record.text().unwrap();
    assert_eq!(Record::parse(&text), record);
    for strange in ["", "7", "[]", "{\"crashes\":7}", "{\"trial\":{\"of\":{}}}"] {
        assert_eq!(Record::parse(strange), Record::default(), "{strange}");
    }
}
