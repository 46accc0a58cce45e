//! From spans to a collector, on a thread that nobody waits for.

use std::sync::{Arc, Mutex, PoisonError};

use agency_supervisor::trace::PromisedSpan;
use async_trait::async_trait;
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry::{Context, Key};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{ExporterBuildError, Protocol, RetryPolicy, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData, SpanExporter};
use ureq::Agent;

use super::config::TraceConfig;

/// The most that is read of an answer.
const LARGEST_ANSWER: u64 = 64 * 1024;

/// The first error, in a few words.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstExportError(Arc<Mutex<Option<String>>>);

impl FirstExportError {
    pub(super) fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what.into());
    }

    pub(super) fn first(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Sends requests to the collector.
struct CollectorClient {
    agent: Agent,
    trouble: FirstExportError,
}

/// The HTTP agent may hold a proxy's password.
impl std::fmt::Debug for CollectorClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CollectorClient").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let sent = self.agent.run(Request::from_parts(parts, &body[..]));
        let answered = sent.and_then(|mut answer| {
            let body = answer.body_mut().with_config().limit(LARGEST_ANSWER).read_to_vec()?;
            Ok(answer.map(|_| Bytes::from(body)))
        });
        match &answered {
            Ok(answer) if !answer.status().is_success() => {
                self.trouble.note(format!("it answered with status {}", answer.status().as_u16()));
            }
            Ok(_) => {}
            Err(error) => self.trouble.note(words(error)),
        }
        Ok(answered?)
    }
}

fn words(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => "it took too long to answer".to_owned(),
        ureq::Error::HostNotFound => "its name has no address".to_owned(),
        ureq::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

/// The official exporter. What we name ourselves goes below `agency.`, so that it collides with no other name.
#[derive(Debug)]
pub(super) struct PrefixingExporter(opentelemetry_otlp::SpanExporter);

impl PrefixingExporter {
    /// Spans that can't be sent are lost: a retry would delay the end of a run.
    pub(super) fn new(
        asked: &TraceConfig,
        agent: Agent,
        trouble: &FirstExportError,
    ) -> Result<Self, ExporterBuildError> {
        let built = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(CollectorClient { agent, trouble: trouble.clone() })
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&asked.endpoint)
            .with_timeout(asked.patience)
            .with_retry_policy(RetryPolicy::disabled())
            .build()?;
        Ok(Self(built))
    }
}

impl SpanExporter for PrefixingExporter {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for attribute in batch.iter_mut().flat_map(|span| &mut span.attributes) {
            if !attribute.key.as_str().contains('.') {
                attribute.key = Key::new(format!("agency.{}", attribute.key));
            }
        }
        self.0.export(batch).await
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.0.shutdown()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

/// Random ids, except for those that were fixed before.
#[derive(Debug, Default)]
pub(super) struct PromisedIdGenerator(RandomIdGenerator);

impl IdGenerator for PromisedIdGenerator {
    fn new_trace_id(&self) -> TraceId {
        self.0.new_trace_id()
    }

    fn new_span_id(&self) -> SpanId {
        let promised = Context::map_current(|context| context.get::<PromisedSpan>().copied());
        promised.map_or_else(|| self.0.new_span_id(), |PromisedSpan(id)| id)
    }
}
