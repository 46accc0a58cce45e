//! What a run does, as a trace for whoever collects them (OTLP), and as lines for whoever watches (`AGENCY_LOG`).
//!
//! What is asked for is OpenTelemetry's own variables ([`mod@config`]); without them nothing here is started. Spans go
//! through a bounded queue to a thread of their own ([`export`]): a collector that is slow or away costs spans, and
//! no run ever waits for one, but for a moment at its end.

mod config;
mod export;

use std::time::Duration;

use agency_supervisor::job::order::TRACE_VARIABLE;
use agency_supervisor::settings::RunSettings;
use agency_supervisor::trace::{self, SCOPE};
use opentelemetry::trace::{SpanBuilder, SpanContext, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, ContextGuard, KeyValue, global};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

pub(crate) use config::{TraceConfig, trace_config};
use export::{FirstExportError, PrefixingExporter, PromisedIdGenerator};

use crate::app::error::{CommandError, ErrorKind};
use crate::cli::message;

/// How long the end of a run waits for the last spans to be sent.
const FAREWELL: Duration = Duration::from_secs(2);

/// The telemetry of a run, until its end.
pub(crate) struct Telemetry {
    /// Makes this thread's work part of the run's span.
    _context: Option<ContextGuard>,
    export: Option<SpanExport>,
}

struct SpanExport {
    provider: SdkTracerProvider,
    run: Context,
    to: String,
    trouble: FirstExportError,
}

/// Starts telemetry, if it is configured.
pub(crate) fn start(asked: Option<TraceConfig>, settings: &RunSettings) -> Result<Telemetry, CommandError> {
    // What is no place in a trace is as if it were not there, as W3C has it.
    let told = std::env::var(TRACE_VARIABLE).ok().and_then(|text| trace::parse(&text));
    let Some(asked) = asked else {
        show::<SdkTracer>(None);
        let context = told.map(|told| Context::new().with_remote_span_context(told).attach());
        return Ok(Telemetry { _context: context, export: None });
    };
    let trouble = FirstExportError::default();
    let provider = provider(&asked, &trouble)?;
    let tracer = provider.tracer(SCOPE);
    show(Some(tracer.clone()));
    global::set_tracer_provider(provider.clone());
    let run = run(&tracer, told, settings);
    let export = SpanExport { provider, run: run.clone(), to: asked.origin.text(), trouble };
    Ok(Telemetry { _context: Some(run.attach()), export: Some(export) })
}

fn provider(asked: &TraceConfig, trouble: &FirstExportError) -> Result<SdkTracerProvider, CommandError> {
    let agent = asked.way.agent(&asked.origin, asked.patience);
    let agent = agent.map_err(|error| CommandError::new(ErrorKind::Usage, &error))?;
    let exporter = PrefixingExporter::new(asked, agent, trouble);
    let exporter = exporter.map_err(|error| CommandError::new(ErrorKind::Usage, &error))?;
    let mut resource =
        Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if !asked.is_named {
        resource = resource.with_service_name("agency");
    }
    Ok(SdkTracerProvider::builder()
        .with_id_generator(PromisedIdGenerator::default())
        .with_resource(resource.build())
        .with_batch_exporter(exporter)
        .build())
}

/// The root span.
fn run(tracer: &SdkTracer, told: Option<SpanContext>, settings: &RunSettings) -> Context {
    let name = settings.root.file_name().map(|name| name.to_string_lossy().into_owned());
    let level = serde_json::to_value(settings.level).unwrap_or_default();
    let builder = SpanBuilder::from_name("run").with_attributes([
        KeyValue::new("repository", name.unwrap_or_default()),
        KeyValue::new("branch", settings.branch.to_string()),
        KeyValue::new("parallel", i64::try_from(settings.parallel).unwrap_or(i64::MAX)),
        KeyValue::new("isolation", level.as_str().unwrap_or_default().to_owned()),
        KeyValue::new("version", env!("CARGO_PKG_VERSION")),
    ]);
    let above = told.map_or_else(Context::new, |told| Context::new().with_remote_span_context(told));
    above.with_span(tracer.build_with_context(builder, &above))
}

/// `AGENCY_LOG=debug` prints every step on standard error. Only our own spans are exported, without their messages.
fn show<T>(tracer: Option<T>)
where
    T: Tracer<Span: Send + Sync> + Send + Sync + 'static,
{
    let log = EnvFilter::try_from_env("AGENCY_LOG").ok();
    if log.is_none() && tracer.is_none() {
        return;
    }
    let ours = filter_fn(|about| about.is_span() && about.target().starts_with("agency"))
        .with_max_level_hint(LevelFilter::INFO);
    let traced = tracer.map(|tracer| {
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_filter(ours)
    });
    let shown = log.map(|filter| fmt::layer().with_writer(std::io::stderr).with_filter(filter));
    tracing_subscriber::registry().with(traced).with(shown).init();
}

impl Telemetry {
    /// Sends the remaining spans at the end of a run, within a short time. A failure is reported once and is not an
    /// error.
    pub(crate) fn end(self, code: u8) {
        let Some(SpanExport { provider, run, to, trouble }) = self.export else { return };
        run.span().set_attribute(KeyValue::new("exit_code", i64::from(code)));
        if code != 0 {
            run.span().set_status(Status::error(format!("exit code {code}")));
        }
        run.span().end();
        if provider.shutdown_with_timeout(FAREWELL).is_err() {
            trouble.note("it does not answer");
        }
        if let Some(what) = trouble.first() {
            message::notice(&format!("telemetry could not be sent to {to}: {what}"));
        }
    }
}
