//! The flags about traces, and the variables of OpenTelemetry that say the same.

use std::{ffi::OsString, time::Duration};

use clap::Args;
use http::Uri;

use super::InvalidSetting;
use crate::telemetry::{OtlpProtocol, Parents, TelemetrySettings};

/// Flags about traces. What they do not say, variables of the environment may.
#[derive(Args, Clone, Debug, Default)]
pub struct TraceFlags {
    /// Where traces are sent by OTLP, such as `http://collector:4317`. Without it
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<String>,

    /// How they are sent: grpc or http/protobuf. Without it `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL`,
    /// `OTEL_EXPORTER_OTLP_PROTOCOL` or grpc.
    #[arg(long, value_name = "PROTOCOL")]
    pub otlp_protocol: Option<String>,

    /// The share of traces that is recorded, from 0 to 1. Without it what `OTEL_TRACES_SAMPLER`
    /// and `OTEL_TRACES_SAMPLER_ARG` say, or all of them.
    #[arg(long, value_name = "RATIO")]
    pub trace_ratio: Option<f64>,
}

/// Looks a variable of the environment up; an empty one counts as unset.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The environment of this process.
fn environment(name: &str) -> Option<String> {
    let value: Option<OsString> = std::env::var_os(name);
    value.and_then(|value| value.into_string().ok())
}

impl TraceFlags {
    /// Completes settings by what is to become of traces, as the flags and the environment say.
    ///
    /// # Errors
    ///
    /// A flag or an environment variable has an invalid value.
    pub fn completed(
        self,
        settings: TelemetrySettings,
    ) -> Result<TelemetrySettings, InvalidSetting> {
        self.complete(settings, &environment)
    }

    /// Completes settings by what is to become of traces.
    fn complete(
        self,
        settings: TelemetrySettings,
        environment: Environment<'_>,
    ) -> Result<TelemetrySettings, InvalidSetting> {
        let said = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let either = |first: &str, second: &str| said(first).or_else(|| said(second));
        let protocol = self.otlp_protocol.or_else(|| {
            either(
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
                "OTEL_EXPORTER_OTLP_PROTOCOL",
            )
        });
        let protocol = protocol.as_deref().map_or(Ok(OtlpProtocol::Grpc), known)?;
        let base = self.otlp_endpoint.filter(|endpoint| !endpoint.is_empty());
        let own = said("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").filter(|_| base.is_none());
        let base = base.or_else(|| said("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let endpoint = own.or_else(|| base.map(|base| of_traces(base, protocol)));
        let is_disabled =
            said("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"));
        let endpoint = endpoint.filter(|_| !is_disabled);
        if let Some(endpoint) = endpoint
            .as_deref()
            .filter(|_| protocol == OtlpProtocol::Http)
        {
            has_a_scheme(endpoint)?;
        }
        let timeout = either(
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
            "OTEL_EXPORTER_OTLP_TIMEOUT",
        );
        let otlp_timeout = match timeout {
            Some(text) => milliseconds(&text)?,
            None => settings.otlp_timeout,
        };
        let (parents, sample_ratio) = match self.trace_ratio {
            Some(ratio) => (Parents::Followed, ratio),
            None => sampling(&said)?,
        };
        Ok(TelemetrySettings {
            otlp_endpoint: endpoint,
            otlp_protocol: protocol,
            otlp_timeout,
            parents,
            sample_ratio,
            ..settings
        })
    }
}

fn known(protocol: &str) -> Result<OtlpProtocol, InvalidSetting> {
    match protocol {
        "grpc" => Ok(OtlpProtocol::Grpc),
        "http/protobuf" => Ok(OtlpProtocol::Http),
        other => Err(invalid(
            "--otlp-protocol (OTEL_EXPORTER_OTLP_PROTOCOL)",
            ("grpc or http/protobuf", other),
        )),
    }
}

/// Over HTTP each signal has a path below what is given for all of them.
fn of_traces(base: String, protocol: OtlpProtocol) -> String {
    match protocol {
        OtlpProtocol::Grpc => base,
        OtlpProtocol::Http => format!("{}/v1/traces", base.trim_end_matches('/')),
    }
}

fn has_a_scheme(endpoint: &str) -> Result<(), InvalidSetting> {
    let scheme = endpoint.parse::<Uri>().ok();
    let scheme = scheme.as_ref().and_then(Uri::scheme_str);
    if matches!(scheme, Some("http" | "https")) {
        return Ok(());
    }
    Err(invalid(
        "--otlp-endpoint (OTEL_EXPORTER_OTLP_ENDPOINT)",
        ("a URL that begins with http:// or https://", endpoint),
    ))
}

fn milliseconds(text: &str) -> Result<Duration, InvalidSetting> {
    let count = text.trim().parse();
    count.map(Duration::from_millis).map_err(|_| {
        let expected = "a number of milliseconds";
        invalid("OTEL_EXPORTER_OTLP_TIMEOUT", (expected, text))
    })
}

fn sampling(said: &dyn Fn(&str) -> Option<String>) -> Result<(Parents, f64), InvalidSetting> {
    let ratio = || match said("OTEL_TRACES_SAMPLER_ARG") {
        None => Ok(1.0),
        Some(text) => text.trim().parse().map_err(|_| {
            let expected = "a number from 0 to 1";
            invalid("OTEL_TRACES_SAMPLER_ARG", (expected, &text))
        }),
    };
    let Some(sampler) = said("OTEL_TRACES_SAMPLER") else {
        return Ok((Parents::Followed, 1.0));
    };
    Ok(match sampler.as_str() {
        "always_on" => (Parents::Ignored, 1.0),
        "always_off" => (Parents::Ignored, 0.0),
        "traceidratio" => (Parents::Ignored, ratio()?),
        "parentbased_always_on" => (Parents::Followed, 1.0),
        "parentbased_always_off" => (Parents::Followed, 0.0),
        "parentbased_traceidratio" => (Parents::Followed, ratio()?),
        other => {
            let expected =
                "always_on, always_off, traceidratio, or one of these behind parentbased_";
            return Err(invalid("OTEL_TRACES_SAMPLER", (expected, other)));
        }
    })
}

fn invalid(name: &'static str, (expected, found): (&'static str, &str)) -> InvalidSetting {
    InvalidSetting::Traces {
        name,
        expected,
        found: found.to_owned(),
    }
}

#[cfg(test)]
mod tests;
