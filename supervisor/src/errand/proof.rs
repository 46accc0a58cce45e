//! A Definition of Done, tried on the commit that would land.

use std::error::Error;

use agency_profiles::library::Library;
use agency_profiles::prove::{Candidate, Event, Order as ProofRun, ProveError, prove};
use agency_profiles::resolve::Resolved;
use agency_profiles::sight::Sight;
use agency_protocols::store::ETag;
use agency_sandbox::host::Host;
use agency_sandbox::workspace::folder::Folder;
use agency_sandbox::workspace::snapshot::Snapshots;
use agency_sandbox::workspace::state::State;
use jiff::Timestamp;

use super::Place;
use super::agent::not_run;
use super::control::Reception;
use super::order::{Order, ProofOrder, Trust};
use super::outcome::{Done, ProofDone, Times};
use super::setup::{self, Shop};
use crate::clock::wall_exactly;
use crate::evidence;
use crate::trace;

pub(super) fn run(place: &Place, order: &Order, proof: &ProofOrder, reception: &Reception) -> Done {
    match carry_out(place, order, proof, reception) {
        Ok(done) => Done::Proof(done),
        Err(error) => match error.downcast_ref() {
            Some(ProveError::Stopped | ProveError::Interrupted { .. }) => Done::Stopped,
            _ if setup::is_stopped(error.as_ref()) => Done::Stopped,
            _ => not_run(place, error.as_ref()),
        },
    }
}

fn carry_out(
    place: &Place,
    order: &Order,
    proof: &ProofOrder,
    reception: &Reception,
) -> Result<ProofDone, Box<dyn Error>> {
    let host = Host::observe();
    let folder = Folder::around(&order.root)?;
    let repository = folder.repository.as_ref().ok_or("the work tree is in no repository any more")?;
    let state = State::at(&order.state);
    let layers =
        Snapshots::open(&state, repository, std::path::Path::new("git"))?.layers(&proof.judged_by)?;
    let profile = resolve(order, proof, &Sight::of_layers(&layers.lowers)?)?;
    let shop = Shop { place, order, host: &host, folder: &folder, state: &state, reception };
    let prepared = proof.setup.as_ref().map(|setup| shop.prepare(setup, &proof.commit)).transpose()?;
    let variables: Vec<_> = std::env::vars_os().collect();
    let mut handed = Vec::new();
    trace::hand_on(order, &mut handed);
    let (mut times, mut from) = (Vec::new(), 0);
    let proof = prove(
        &ProofRun {
            folder: &folder,
            candidate: Candidate::Commit(&proof.commit),
            level: order.level,
            container: order.container().as_ref(),
            host: &host,
            state: &state,
            copies: &order.copies,
            logs: &place.path().join("logs"),
            variables: &variables,
            handed: &handed,
            trusted: true,
            fail_fast: false,
            aside: &[],
            prepared: prepared.as_ref(),
            clock: &Timestamp::now,
            attendant: reception,
        },
        &profile,
        &mut |event| match event {
            Event::Started { .. } => from = wall_exactly(),
            Event::Ended { .. } => times.push(Times { from, to: wall_exactly() }),
        },
    )?;
    Ok(ProofDone {
        evidence: evidence::of(&proof, &folder.root),
        proof: serde_json::to_value(&proof)?,
        times,
    })
}

/// What the profile means for the tree the agent started from. What the repository has of its own must be
/// trusted, text by text.
fn resolve(order: &Order, proof: &ProofOrder, sight: &Sight) -> Result<Resolved, Box<dyn Error>> {
    let own = proof.profiles.as_ref().map(|folder| order.root.join(folder));
    let resolved = Library::new(own).resolve(&proof.profile, sight)?;
    let trusts = |text: &str| match &proof.trust {
        Trust::All => true,
        Trust::These(known) => known.contains(&ETag::of(text.as_bytes()).to_string()),
    };
    match resolved.untrusted().iter().find(|own| !trusts(&own.text)) {
        Some(own) => {
            let file = own.path.strip_prefix(&order.root).unwrap_or(&own.path).display();
            Err(format!("{file} is the repository's own profile, and nobody has trusted it as it is").into())
        }
        None => Ok(resolved),
    }
}
