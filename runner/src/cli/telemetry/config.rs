//! What the environment asks for, in the words of OpenTelemetry. Only what can be done is taken; anything else is one
//! clear sentence before anything starts.

use std::ffi::OsString;
use std::time::Duration;

use ureq::http::Uri;

use crate::app::error::CommandError;
use crate::app::http::HttpSettings;
use crate::app::http::origin::Origin;

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const COMPRESSIONS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];

/// OpenTelemetry's default timeout for a collector.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where spans go. Headers are not kept here: they hold secrets, and are read where they are sent.
pub(crate) struct TraceConfig {
    pub(super) endpoint: String,
    pub(super) origin: Origin,
    pub(super) patience: Duration,
    pub(super) way: HttpSettings,
    /// Whether the environment names this service.
    pub(super) is_named: bool,
}

/// `None` if no exporter is configured.
pub(crate) fn trace_config(
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<TraceConfig>, CommandError> {
    // A variable that is set to nothing is one that is not set.
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let text = |name: &str| set(name).map(|value| value.to_string_lossy().trim().to_owned());
    let first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, text(name)?)));
    if text("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    match text("OTEL_TRACES_EXPORTER").as_deref() {
        Some("none") => return Ok(None),
        None | Some("otlp") => {}
        Some(_) => {
            return Err(CommandError::usage(
                "OTEL_TRACES_EXPORTER is neither otlp nor none, and nothing else is known here",
            ));
        }
    }
    let Some((name, given)) = first(ENDPOINTS) else { return Ok(None) };
    let (endpoint, origin) = endpoint(name, &given)?;
    if let Some((name, protocol)) = first(PROTOCOLS)
        && protocol != "http/protobuf"
    {
        return Err(CommandError::usage(format!("{name}: spans are sent as http/protobuf only"))
            .with_hint("collectors listen for it at port 4318, beside grpc at 4317"));
    }
    if let Some((name, compression)) = first(COMPRESSIONS)
        && compression != "none"
    {
        return Err(CommandError::usage(format!("{name}: spans are sent without compression only")));
    }
    let patience = match first(TIMEOUTS) {
        None => PATIENCE,
        Some((name, given)) => match given.parse() {
            Ok(ms @ 1..) => Duration::from_millis(ms),
            _ => return Err(CommandError::usage(format!("{name} is not a number of milliseconds"))),
        },
    };
    let is_named = text("OTEL_SERVICE_NAME").is_some()
        || text("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|listed| {
            listed.split(',').any(|one| one.split('=').next().is_some_and(|key| key.trim() == "service.name"))
        });
    Ok(Some(TraceConfig { endpoint, origin, patience, way: HttpSettings::from(&set), is_named }))
}

/// The address of the collector. It is never printed: it may hold a password before an @.
fn endpoint(name: &str, given: &str) -> Result<(String, Origin), CommandError> {
    let wrong = |why: &str| CommandError::usage(format!("{name} {why}"));
    let parsed = given.parse::<Uri>().ok();
    let Some((uri, origin)) = parsed.and_then(|uri| Origin::of(&uri).map(|origin| (uri, origin))) else {
        return Err(wrong("is not a URL: it must begin with http:// or https:// and name a host"));
    };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(wrong("must not hold a user or a password; OTEL_EXPORTER_OTLP_HEADERS is for them"));
    }
    // What is for all kinds of telemetry says where to begin, what is for spans says all.
    let endpoint = match name == ENDPOINTS[0] {
        true => given.to_owned(),
        false => format!("{}{}/v1/traces", origin.text(), uri.path().trim_end_matches('/')),
    };
    Ok((endpoint, origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(pairs: &[(&str, &str)]) -> Result<Option<TraceConfig>, CommandError> {
        trace_config(|name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    fn sent_to(pairs: &[(&str, &str)]) -> Option<String> {
        ask(pairs).expect("asked well").map(|asked| asked.endpoint)
    }

    const COLLECTOR: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");

    #[test]
    fn spans_go_where_the_most_exact_variable_says() {
        for (pairs, expected) in [
            (&[COLLECTOR][..], Some("http://127.0.0.1:4318/v1/traces")),
            (
                &[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c.example/otlp/")],
                Some("https://c.example/otlp/v1/traces"),
            ),
            (&[COLLECTOR, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://x:1/y")], Some("http://x:1/y")),
            (&[COLLECTOR, ("OTEL_TRACES_EXPORTER", "otlp")], Some("http://127.0.0.1:4318/v1/traces")),
            (&[], None),
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")], None),
            (&[COLLECTOR, ("OTEL_TRACES_EXPORTER", "none")], None),
            (&[COLLECTOR, ("OTEL_SDK_DISABLED", "TRUE")], None),
            (&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], None),
        ] {
            assert_eq!(sent_to(pairs).as_deref(), expected, "{pairs:?}");
        }
    }

    #[test]
    fn what_can_not_be_done_is_one_sentence_that_quotes_nothing() {
        for pair in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "hunter2:4318"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector hunter2"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://hunter2"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hunter2@example.org"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
        ] {
            let Err(failure) = ask(&[pair, COLLECTOR]) else { panic!("{pair:?} was taken") };
            assert_eq!(failure.kind, crate::app::error::ErrorKind::Usage);
            assert!(failure.message.contains(pair.0) && !failure.message.contains("hunter2"), "{failure:?}");
        }
    }

    #[test]
    fn a_service_that_has_a_name_keeps_it() {
        let named = |pair| ask(&[COLLECTOR, pair]).expect("asked well").is_some_and(|asked| asked.is_named);
        assert!(named(("OTEL_SERVICE_NAME", "night")));
        assert!(named(("OTEL_RESOURCE_ATTRIBUTES", "team=a, service.name=night")));
        assert!(!named(("OTEL_RESOURCE_ATTRIBUTES", "service.namespace=night")));
    }
}
