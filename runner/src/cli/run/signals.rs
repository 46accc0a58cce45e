//! Signals that end a run: Ctrl-C is for the run, and what ends a service lets its agents live.

use agency_supervisor::dispatch::Interrupt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::app::error::CommandError;

/// What signals ask of a run. The runtime that this is called in listens for as long as the runtime lives.
pub(crate) fn interrupts() -> Result<mpsc::Receiver<Interrupt>, CommandError> {
    let (interrupt, interrupts) = mpsc::channel(4);
    for (kind, meant) in [
        (SignalKind::interrupt(), Interrupt::Drain),
        (SignalKind::terminate(), Interrupt::Detach),
        (SignalKind::hangup(), Interrupt::Detach),
    ] {
        let mut heard = signal(kind).map_err(|error| CommandError::internal(&error))?;
        let interrupt = interrupt.clone();
        tokio::spawn(async move {
            while heard.recv().await.is_some() {
                if interrupt.send(meant).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(interrupts)
}
