use super::*;

fn check(rules: &AddressRules, cases: &[(&str, Result<(), AddressRefused>)]) {
    for (address, expected) in cases {
        let endpoint = SocketAddr::new(address.parse().unwrap(), 6443);
        assert_eq!(rules.check(endpoint), *expected, "{address}");
    }
}

fn ranges(texts: &[&str]) -> Vec<AddressRange> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn addresses_that_lead_to_ourselves_or_to_metadata_are_refused() {
    use AddressRefused::{
        LinkLocal, Loopback, MetadataService, Multicast, Reserved, Translated, Unspecified,
    };
    let cases = [
        ("10.1.2.3", Ok(())),
        ("192.168.1.1", Ok(())),
        ("203.0.113.7", Ok(())),
        ("2001:db8::1", Ok(())),
        ("fd12::1", Ok(())),
        ("127.0.0.1", Err(Loopback)),
        ("127.255.0.9", Err(Loopback)),
        ("::1", Err(Loopback)),
        ("0.0.0.0", Err(Unspecified)),
        ("0.1.2.3", Err(Unspecified)),
        ("::", Err(Unspecified)),
        ("169.254.169.254", Err(LinkLocal)),
        ("fe80::1", Err(LinkLocal)),
        ("febf::1", Err(LinkLocal)),
        ("224.0.0.1", Err(Multicast)),
        ("ff02::1", Err(Multicast)),
        ("240.0.0.1", Err(Reserved)),
        ("255.255.255.255", Err(Reserved)),
        ("168.63.129.16", Err(MetadataService)),
        ("192.0.0.192", Err(MetadataService)),
        ("100.100.100.200", Err(MetadataService)),
        ("fd00:ec2::254", Err(MetadataService)),
        ("fd00:ec2::23", Err(MetadataService)),
        ("fd00:ec2:1::1", Err(MetadataService)),
        ("fd00:ec3::254", Ok(())),
        ("fd20:ce::254", Err(MetadataService)),
        ("fd20:ce::253", Ok(())),
        ("fd00:c1::a9fe:a9fe", Err(MetadataService)),
        ("fd00:100::100:200", Err(MetadataService)),
        ("fd00:42::42", Err(MetadataService)),
        ("fd00:a9fe:a9fe::1", Err(MetadataService)),
        ("::ffff:0:7f00:1", Err(Translated)),
        ("64:ff9b:1::7f00:1", Err(Translated)),
        ("64:ff9b:0:0:1::1", Err(Translated)),
        ("2001:0:1::1", Err(Translated)),
    ];
    check(&AddressRules::default(), &cases);
}

#[test]
fn an_address_inside_of_another_is_checked_as_itself() {
    use AddressRefused::{LinkLocal, Loopback, MetadataService, Unspecified};
    let cases = [
        ("::ffff:127.0.0.1", Err(Loopback)),
        ("::ffff:169.254.169.254", Err(LinkLocal)),
        ("::ffff:168.63.129.16", Err(MetadataService)),
        ("::ffff:0.0.0.0", Err(Unspecified)),
        ("::ffff:0.0.0.1", Err(Unspecified)),
        ("::127.0.0.1", Err(Loopback)),
        ("::ffff:10.0.0.1", Ok(())),
        ("64:ff9b::127.0.0.1", Err(Loopback)),
        ("64:ff9b::169.254.169.254", Err(LinkLocal)),
        ("64:ff9b::10.0.0.1", Ok(())),
        ("2002:7f00:1::", Err(Loopback)),
        ("2002:a9fe:a9fe::1", Err(LinkLocal)),
        ("2002:a00:1::1", Ok(())),
    ];
    check(&AddressRules::default(), &cases);
}

#[test]
fn loopback_is_allowed_where_a_setting_says_so_and_nothing_else_with_it() {
    let rules = AddressRules {
        loopback: Loopback::Allowed,
        ..AddressRules::default()
    };
    let cases = [
        ("127.0.0.1", Ok(())),
        ("::1", Ok(())),
        ("::ffff:127.0.0.1", Ok(())),
        ("0.0.0.0", Err(AddressRefused::Unspecified)),
        ("169.254.169.254", Err(AddressRefused::LinkLocal)),
    ];
    check(&rules, &cases);
    let localhost = Host::Name("localhost".to_owned());
    assert_eq!(rules.check_host(&localhost, 6443), Ok(()));
}

#[test]
fn the_operators_ranges_count_for_embedded_addresses_too() {
    let rules = AddressRules {
        allowed: ranges(&["10.0.0.0/8", "fd00::/8"]),
        denied: ranges(&["10.9.0.0/16", "10.1.1.1"]),
        ..AddressRules::default()
    };
    let cases = [
        ("10.1.2.3", Ok(())),
        ("fd00::1", Ok(())),
        ("11.0.0.1", Err(AddressRefused::OutsideAllowed)),
        ("fe00::1", Err(AddressRefused::OutsideAllowed)),
        ("10.9.255.255", Err(AddressRefused::DeniedRange)),
        ("10.1.1.1", Err(AddressRefused::DeniedRange)),
        ("10.1.1.2", Ok(())),
        ("::ffff:10.9.0.1", Err(AddressRefused::DeniedRange)),
        ("64:ff9b::10.9.0.1", Err(AddressRefused::DeniedRange)),
    ];
    check(&rules, &cases);
}

#[test]
fn a_denied_server_is_denied_by_name_and_address_and_only_at_its_port() {
    let denied = |host, port| DeniedServer { host, port };
    let rules = AddressRules {
        denied_servers: vec![
            denied(Host::Address("10.0.0.1".parse().unwrap()), Some(6443)),
            denied(Host::Name("kubernetes.default.svc".to_owned()), None),
        ],
        ..AddressRules::default()
    };
    let refused = Err(AddressRefused::DeniedServer);
    for (endpoint, expected) in [
        ("10.0.0.1:6443", refused),
        ("[::ffff:10.0.0.1]:6443", refused),
        ("10.0.0.1:31000", Ok(())),
        ("10.0.0.2:6443", Ok(())),
    ] {
        assert_eq!(
            rules.check(endpoint.parse().unwrap()),
            expected,
            "{endpoint}"
        );
    }
    let name = |name: &str| rules.check_host(&Host::Name(name.to_owned()), 443);
    assert_eq!(name("kubernetes.default.svc"), refused);
    assert_eq!(name("kubernetes.example"), Ok(()));
}

#[test]
fn names_of_this_machine_count_as_loopback() {
    let rules = AddressRules::default();
    for name in ["localhost", "api.localhost"] {
        let host = Host::Name(name.to_owned());
        assert_eq!(rules.check_host(&host, 443), Err(AddressRefused::Loopback));
    }
    let other = Host::Name("notlocalhost".to_owned());
    assert_eq!(rules.check_host(&other, 443), Ok(()));
}

#[test]
fn a_range_is_parsed_with_and_without_a_prefix() {
    for (text, shown) in [
        ("10.0.0.0/8", Some("10.0.0.0/8")),
        ("10.0.0.1", Some("10.0.0.1/32")),
        ("::/0", Some("::/0")),
        ("0.0.0.0/0", Some("0.0.0.0/0")),
        ("10.0.0.0/33", None),
        ("10.0.0.0/", None),
        ("10.0.0/8", None),
        ("fd00::/129", None),
        ("", None),
    ] {
        let parsed = text.parse::<AddressRange>();
        assert_eq!(
            parsed.ok().map(|range| range.to_string()).as_deref(),
            shown,
            "{text}"
        );
    }
    let everything: AddressRange = "0.0.0.0/0".parse().unwrap();
    assert!(everything.contains("203.0.113.7".parse().unwrap()));
    assert!(!everything.contains("::1".parse().unwrap()));
}

#[test]
fn a_denied_server_is_written_as_people_write_servers() {
    for (text, host, port) in [
        ("api.example", Some("api.example"), None),
        ("API.example.:6443", Some("api.example"), Some(6443)),
        ("10.0.0.1:443", Some("10.0.0.1"), Some(443)),
        ("[fd00::1]:443", Some("[fd00::1]"), Some(443)),
        ("fd00::1", None, None),
        ("https://api.example", None, None),
        ("10.0.0.1:0", None, None),
        ("", None, None),
    ] {
        let parsed = text.parse::<DeniedServer>().ok();
        let shown = parsed.as_ref().map(|server| server.host.to_string());
        assert_eq!(shown.as_deref(), host, "{text}");
        assert_eq!(parsed.and_then(|server| server.port), port, "{text}");
    }
}

#[test]
fn the_names_of_our_own_api_server_are_denied_without_a_setting() {
    let rules = AddressRules::default();
    for name in [
        "kubernetes",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ] {
        let host = Host::Name(name.to_owned());
        assert_eq!(
            rules.check_host(&host, 443),
            Err(AddressRefused::DeniedServer),
            "{name}"
        );
    }
}
