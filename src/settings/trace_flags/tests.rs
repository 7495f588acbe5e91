use super::*;

fn settings(flags: TraceFlags, variables: &[(&str, &str)]) -> Result<TelemetrySettings, String> {
    let environment = |name: &str| {
        let mut variables = variables.iter();
        let found = variables.find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let completed = flags.complete(TelemetrySettings::default(), &environment);
    completed.map_err(|error| error.to_string())
}

fn of_variables(variables: &[(&str, &str)]) -> TelemetrySettings {
    settings(TraceFlags::default(), variables).unwrap()
}

fn sent(settings: &TelemetrySettings) -> (Option<&str>, OtlpProtocol) {
    (settings.otlp_endpoint.as_deref(), settings.otlp_protocol)
}

const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
const HTTP: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");

#[test]
fn a_flag_comes_before_the_variable_of_traces_and_that_before_the_one_of_all() {
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces/path");
    let flags = TraceFlags {
        otlp_endpoint: Some("http://flag:1".to_owned()),
        ..TraceFlags::default()
    };
    let all = [BASE, HTTP, own];
    let path = "http://flag:1/v1/traces";
    let of_flags = settings(flags, &all).unwrap();
    assert_eq!(sent(&of_flags), (Some(path), OtlpProtocol::Http));
    let expected = (Some("http://traces/path"), OtlpProtocol::Http);
    assert_eq!(sent(&of_variables(&all)), expected);
    let expected = (Some("http://collector:4318/v1/traces"), OtlpProtocol::Http);
    assert_eq!(sent(&of_variables(&[BASE, HTTP])), expected);
    let expected = (Some("http://collector:4318/"), OtlpProtocol::Grpc);
    assert_eq!(sent(&of_variables(&[BASE])), expected);
    assert_eq!(sent(&of_variables(&[])), (None, OtlpProtocol::Grpc));
}

#[test]
fn what_is_empty_says_nothing_and_disabled_is_no_traces() {
    let empty = [
        BASE,
        ("OTEL_EXPORTER_OTLP_PROTOCOL", ""),
        ("OTEL_TRACES_SAMPLER", ""),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", " "),
        ("OTEL_SDK_DISABLED", "1"),
    ];
    let settings = of_variables(&empty);
    assert_eq!(sent(&settings), sent(&of_variables(&[BASE])));
    assert_eq!(settings.sample_ratio.to_bits(), 1.0_f64.to_bits());
    let disabled = of_variables(&[BASE, ("OTEL_SDK_DISABLED", "True")]);
    assert_eq!(disabled.otlp_endpoint, None);
}

#[test]
fn samplers_are_those_of_the_standard() {
    for (sampler, argument, parents, ratio) in [
        ("always_on", "0.5", Parents::Ignored, 1.0),
        ("always_off", "0.5", Parents::Ignored, 0.0),
        ("traceidratio", "0.25", Parents::Ignored, 0.25),
        ("traceidratio", "", Parents::Ignored, 1.0),
        ("parentbased_always_on", "0.5", Parents::Followed, 1.0),
        ("parentbased_always_off", "0.5", Parents::Followed, 0.0),
        ("parentbased_traceidratio", "0.25", Parents::Followed, 0.25),
    ] {
        let variables = [
            ("OTEL_TRACES_SAMPLER", sampler),
            ("OTEL_TRACES_SAMPLER_ARG", argument),
        ];
        let settings = of_variables(&variables);
        assert_eq!(settings.parents, parents, "{sampler}");
        let found = settings.sample_ratio;
        assert_eq!(found.to_bits(), f64::to_bits(ratio), "{sampler}: {found}");
    }
    let flags = TraceFlags {
        trace_ratio: Some(0.5),
        ..TraceFlags::default()
    };
    let both = settings(flags, &[("OTEL_TRACES_SAMPLER", "always_off")]).unwrap();
    assert_eq!(both.sample_ratio.to_bits(), 0.5_f64.to_bits());
}

#[test]
fn what_cannot_be_is_refused_by_its_name() {
    for (variables, expected) in [
        (
            vec![("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")],
            "--otlp-protocol (OTEL_EXPORTER_OTLP_PROTOCOL) must be grpc or http/protobuf, \
             not \"http/json\"",
        ),
        (
            vec![("OTEL_TRACES_SAMPLER", "xray")],
            "OTEL_TRACES_SAMPLER must be always_on, ",
        ),
        (
            vec![
                ("OTEL_TRACES_SAMPLER", "traceidratio"),
                ("OTEL_TRACES_SAMPLER_ARG", "most"),
            ],
            "OTEL_TRACES_SAMPLER_ARG must be a number",
        ),
        (
            vec![("OTEL_EXPORTER_OTLP_TIMEOUT", "10s")],
            "OTEL_EXPORTER_OTLP_TIMEOUT must be a number of milliseconds",
        ),
        (
            vec![HTTP, ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")],
            "--otlp-endpoint (OTEL_EXPORTER_OTLP_ENDPOINT) must be a URL",
        ),
    ] {
        let refused = settings(TraceFlags::default(), &variables).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
    let timeout = of_variables(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "2500")]).otlp_timeout;
    assert_eq!(timeout, Duration::from_millis(2_500));
}
