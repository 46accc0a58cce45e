//! How the work of an attempt comes into a trace, if one is kept.
//!
//! What a run belongs to is the context of its thread (`opentelemetry::Context`). Attempts and their steps are spans of
//! `tracing`, which the subscriber that keeps the trace puts below it. Jobs are not: they run in processes of their
//! own, and maybe for a supervisor before this one. Their spans are made of what they left in their folders, with the
//! times that stand there.
//!
//! A job is told where it belongs before there is a span, by a promise: the span that is made of it in the end has
//! the id it was told, so that what an agent tells of itself stands below what is told of the agent.
//!
//! A span says what was done and how it ended. Nothing of a prompt, of what an agent wrote, or of a variable's value
//! is in one. Where no trace is kept, all of this is one look at the thread's context.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{
    Link, Span, SpanBuilder, SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
    Tracer,
};
use opentelemetry::{Context, KeyValue, global};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::job::order::{JobKind, JobOrder, TraceParent};
use crate::job::outcome::{JobOutcome, JobResult, ProgramEnd, StopReason, TimeSpan};
use crate::job::{JobFolder, JobState};

/// Under which name spans of ours are made.
pub const SCOPE: &str = "agency";

/// The id that the next span is to have. The generator of ids looks for it in the current context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromisedSpan(pub SpanId);

/// Where in a trace something belongs, as programs tell each other; `None` if that is not what the text says.
pub fn parse(text: &str) -> Option<SpanContext> {
    let mut parts = text.trim().split('-');
    let mut part = |length: usize| {
        let part = parts.next()?;
        let plain = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (part.len() == length && plain).then_some(part)
    };
    let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    // Later versions may say more, and this much in the same way.
    if version == "ff" || version == "00" && parts.next().is_some() {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    Some(SpanContext::new(trace, span, flags, true, TraceState::NONE)).filter(SpanContext::is_valid)
}

fn text(trace: TraceId, span: SpanId, flags: TraceFlags) -> String {
    format!("00-{trace}-{span}-{:02x}", flags.to_u8())
}

/// What a job that is ordered now is told. If no trace is kept here, we hand on what we were told.
pub(crate) fn for_new_job() -> Option<TraceParent> {
    Context::map_current(|context| {
        let span = context.span();
        let here = span.span_context().clone();
        let own = if span.is_recording() { new_id() } else { None };
        here.is_valid().then(|| TraceParent {
            parent: text(here.trace_id(), own.unwrap_or(here.span_id()), here.trace_flags()),
            promised: own.is_some(),
        })
    })
}

fn new_id() -> Option<SpanId> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty()).ok()?;
    Some(SpanId::from_bytes(bytes)).filter(|id| *id != SpanId::INVALID)
}

/// A step's span ends when it is done, and shows if that was an error. By itself it would end when the last thread lets
/// go of it, and the store's does so some time after it has answered.
pub(crate) async fn with_status<T, E>(effect: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let done = effect.await;
    if done.is_err() {
        set_wrong("error");
    }
    end();
    done
}

/// How far an attempt came is seen on its span, which ends here.
pub(crate) fn record_outcome(wrong: Option<&str>) {
    if let Some(wrong) = wrong {
        set_wrong(wrong);
    }
    end();
}

fn end() {
    Context::map_current(|context| context.span().end());
}

fn set_wrong(what: &str) {
    Context::map_current(|context| context.span().set_status(Status::error(what.to_owned())));
}

/// A job is over, and its span can be made.
pub(crate) fn record_job(place: &JobFolder, state: Option<&JobState>) {
    let Some(JobState::Over(outcome)) = state else { return };
    let attempt = Context::current();
    // Without room for it, it was not begun, and may still be.
    if !attempt.span().is_recording()
        || matches!(outcome.done, JobResult::NoRoom { .. } | JobResult::Away { .. })
    {
        return;
    }
    if let Ok(order) = place.read_order() {
        make(&attempt, &order, outcome);
    }
}

fn make(attempt: &Context, order: &JobOrder, outcome: &JobOutcome) {
    let tracer = global::tracer(SCOPE);
    let times = outcome.times.unwrap_or_else(|| seconds(outcome.started_at, outcome.ended_at));
    let (name, attributes) = about(order, outcome);
    let mut builder =
        SpanBuilder::from_name(name).with_start_time(time(times.from)).with_attributes(attributes);
    let trace = attempt.span().span_context().trace_id();
    let told = order.trace.as_ref().and_then(|told| Some((parse(&told.parent)?, told.promised)));
    let promise = match told {
        Some((told, true)) if told.trace_id() == trace => attempt.with_value(PromisedSpan(told.span_id())),
        // It was promised by a supervisor before us, in a trace of its own.
        Some((told, true)) => {
            builder = builder.with_links(vec![Link::with_context(told)]);
            attempt.clone()
        }
        _ => attempt.clone(),
    };
    let span = {
        let _promised = promise.attach();
        tracer.build_with_context(builder, attempt)
    };
    let job = attempt.with_span(span);
    if let Some(wrong) = wrong(outcome) {
        job.span().set_status(Status::error(wrong));
    }
    if let JobResult::Proof(proof) = &outcome.done {
        for (command, times) in proof.evidence.commands.iter().zip(&proof.times) {
            let name = command["cmd"].as_str().unwrap_or_default().to_owned();
            let mut attributes = vec![KeyValue::new("command", name)];
            let code = command["exit_code"].as_i64();
            attributes.extend(code.map(|code| KeyValue::new("exit_code", code)));
            let builder = SpanBuilder::from_name("command")
                .with_start_time(time(times.from))
                .with_attributes(attributes);
            let mut span = tracer.build_with_context(builder, &job);
            if code != Some(0) {
                span.set_status(Status::error("failed"));
            }
            span.end_with_timestamp(time(times.to));
        }
    }
    job.span().end_with_timestamp(time(times.to));
}

/// What kind of job it was, and what can be told of it.
fn about(order: &JobOrder, outcome: &JobOutcome) -> (&'static str, Vec<KeyValue>) {
    match &order.what {
        JobKind::Agent(agent) | JobKind::Audit(agent) => {
            let program = agent.program.command.first().map(Path::new).and_then(Path::file_name);
            let program = program.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let mut attributes = vec![KeyValue::new("program", program)];
            if let JobResult::Agent(done) = &outcome.done {
                if let ProgramEnd::Exited { code } = done.end {
                    attributes.push(KeyValue::new("exit_code", i64::from(code)));
                }
                attributes.push(KeyValue::new("changed", count(&done.changed, done.changed_left_out)));
                attributes
                    .push(KeyValue::new("violations", count(&done.violations, done.violations_left_out)));
                if let Some(usage) = done.usage {
                    attributes.push(KeyValue::new("tokens", i64::try_from(usage.tokens).unwrap_or(i64::MAX)));
                    if let Some(cost) = usage.cost_micros {
                        attributes.push(KeyValue::new("cost", cost as f64 / 1_000_000.0));
                    }
                }
            }
            let name = if matches!(order.what, JobKind::Audit(_)) { "audit" } else { "agent" };
            (name, attributes)
        }
        JobKind::Proof(proof) => ("verify", vec![KeyValue::new("profile", proof.profile.clone())]),
    }
}

fn count<T>(items: &[T], left_out: u64) -> i64 {
    i64::try_from(items.len() as u64 + left_out).unwrap_or(i64::MAX)
}

/// Why a job did not come to a good end, in a word or two.
fn wrong(outcome: &JobOutcome) -> Option<&'static str> {
    match (outcome.stopped, &outcome.done) {
        (Some(StopReason::Canceled), _) => Some("canceled"),
        (Some(StopReason::LeaseEnded), _) => Some("lease ended"),
        (Some(StopReason::Signal), _) => Some("stopped"),
        (None, JobResult::Agent(done)) if !done.violations.is_empty() => Some("out of scope"),
        (None, JobResult::Agent(done)) => match done.end {
            ProgramEnd::Exited { code: 0 } => None,
            ProgramEnd::Exited { .. } => Some("exit code"),
            ProgramEnd::Signaled { .. } => Some("signal"),
            ProgramEnd::Wall => Some("too long"),
            ProgramEnd::Stall => Some("no sign of life"),
            ProgramEnd::Memory => Some("out of memory"),
            ProgramEnd::Asked => Some("stopped"),
            ProgramEnd::NotStarted { .. } => Some("not started"),
        },
        (None, JobResult::Proof(proof)) => (!proof.evidence.passed).then_some("does not hold"),
        (None, JobResult::NotRun { .. } | JobResult::NoRoom { .. } | JobResult::Away { .. }) => {
            Some("not run")
        }
        (None, JobResult::Lost { .. }) => Some("lost"),
        (None, JobResult::Unread { .. }) => Some("not kept"),
        (None, JobResult::Stopped) => Some("stopped"),
    }
}

fn seconds(from: i64, to: i64) -> TimeSpan {
    let exactly = |seconds: i64| u64::try_from(seconds).unwrap_or(0) * 1_000_000;
    TimeSpan { from: exactly(from), to: exactly(to) }
}

fn time(microseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(microseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_programs_tell_each_other_is_read_and_written() {
        let here = parse(HERE).expect("a place in a trace");
        assert!(here.is_remote() && here.is_sampled());
        assert_eq!(text(here.trace_id(), here.span_id(), here.trace_flags()), HERE);
        let later = parse(&format!("cc{}-and-more", &HERE[2..])).expect("a later version");
        assert_eq!(later.span_id(), here.span_id());
    }

    #[test]
    fn what_is_no_place_in_a_trace_is_none() {
        for odd in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333\u{661}-01",
        ] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn without_a_trace_a_job_is_told_what_we_were_told_or_nothing() {
        assert_eq!(for_new_job(), None);
        let told = parse(HERE).expect("a place in a trace");
        let _here = Context::new().with_remote_span_context(told).attach();
        assert_eq!(for_new_job(), Some(TraceParent { parent: HERE.to_owned(), promised: false }));
    }
}
