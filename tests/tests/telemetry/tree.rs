//! Spans, as they hang together.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use agency_tests::collector::attributes;

/// All spans of one trace.
#[derive(Debug)]
pub(crate) struct Tree {
    spans: Vec<Span>,
}

impl Tree {
    /// They are of one trace, and each has an id of its own.
    #[track_caller]
    pub(crate) fn of(mut spans: Vec<Span>) -> Self {
        spans.sort_by_key(|span| span.start_time_unix_nano);
        let mut ids: Vec<&[u8]> = spans.iter().map(|span| &span.span_id[..]).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), spans.len(), "an id twice: {spans:#?}");
        assert!(spans.iter().all(|span| span.trace_id == spans[0].trace_id), "several traces: {spans:#?}");
        Self { spans }
    }

    /// The one whose parent is none of these.
    #[track_caller]
    pub(crate) fn root(&self) -> &Span {
        let known = |id: &[u8]| self.spans.iter().any(|span| span.span_id == id);
        let roots: Vec<&Span> = self.spans.iter().filter(|span| !known(&span.parent_span_id)).collect();
        assert_eq!(roots.len(), 1, "{roots:#?}");
        roots[0]
    }

    /// Below a span, with this name, in the order of their beginnings. They lie within it.
    #[track_caller]
    pub(crate) fn below(&self, parent: &Span, name: &str) -> Vec<&Span> {
        let found: Vec<&Span> = self
            .spans
            .iter()
            .filter(|span| span.parent_span_id == parent.span_id && span.name == name)
            .collect();
        for span in &found {
            assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:#?}");
            assert!(parent.start_time_unix_nano <= span.start_time_unix_nano, "{span:#?} in {parent:#?}");
            assert!(span.end_time_unix_nano <= parent.end_time_unix_nano, "{span:#?} in {parent:#?}");
        }
        found
    }

    /// The only one of that name below a span.
    #[track_caller]
    pub(crate) fn only(&self, parent: &Span, name: &str) -> &Span {
        let found = self.below(parent, name);
        assert_eq!(found.len(), 1, "{name}: {found:#?}");
        found[0]
    }

    pub(crate) fn steps(&self, parent: &Span) -> Vec<String> {
        self.below(parent, "step").into_iter().map(|span| about(span)["agency.step"].clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }
}

pub(crate) fn about(span: &Span) -> BTreeMap<String, String> {
    attributes(&span.attributes)
}

/// Whether a span says that something went wrong, and what.
pub(crate) fn wrong(span: &Span) -> Option<String> {
    let status = span.status.as_ref()?;
    (status.code() == StatusCode::Error).then(|| status.message.clone())
}

/// As a program is told of it.
pub(crate) fn traceparent(span: &Span) -> String {
    named(&span.trace_id, &span.span_id)
}

pub(crate) fn named(trace: &[u8], span: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("00-{}-{}-01", hex(trace), hex(span))
}
