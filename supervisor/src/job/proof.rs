//! A Definition of Done, tried on the commit that would land.

use std::error::Error;

use agency_profiles::library::ProfileLibrary;
use agency_profiles::project_files::ProjectFiles;
use agency_profiles::prove::{ProofCandidate, ProofEvent, ProofRequest as ProofRun, ProveError, prove};
use agency_profiles::resolve::ResolvedProfile;
use agency_protocols::store::ETag;
use agency_sandbox::host::HostUser;
use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_sandbox::workspace::snapshot::Snapshots;
use agency_sandbox::workspace::state::StateFolder;
use jiff::Timestamp;

use super::JobFolder;
use super::control::ControlSocket;
use super::not_run::not_run;
use super::order::{JobOrder, ProfileTrust, ProofOrder};
use super::outcome::{JobResult, ProofOutcome, TimeSpan};
use super::setup::{self, SetupRunner};
use crate::clock::wall_micros;
use crate::evidence;

pub(super) fn run(
    place: &JobFolder,
    order: &JobOrder,
    proof: &ProofOrder,
    reception: &ControlSocket,
) -> JobResult {
    match carry_out(place, order, proof, reception) {
        Ok(done) => JobResult::Proof(done),
        Err(error) => match error.downcast_ref() {
            Some(ProveError::Stopped | ProveError::Interrupted { .. }) => JobResult::Stopped,
            _ if setup::is_stopped(error.as_ref()) => JobResult::Stopped,
            _ => not_run(place, error.as_ref()),
        },
    }
}

fn carry_out(
    place: &JobFolder,
    order: &JobOrder,
    proof: &ProofOrder,
    reception: &ControlSocket,
) -> Result<ProofOutcome, Box<dyn Error>> {
    let host = HostUser::observe();
    let folder = WorkspaceFolder::discover(&order.root)?;
    let repository = folder.repository.as_ref().ok_or("the work tree is in no repository any more")?;
    let state = StateFolder::at(&order.state);
    let layers =
        Snapshots::open(&state, repository, std::path::Path::new("git"))?.layers(&proof.judged_by)?;
    let files = ProjectFiles::open_layers(&layers.lowers)?;
    // A profile that can't be resolved needs no setup.
    let mut profile = resolve(order, proof, &files)?;
    let context = SetupRunner { place, order, host: &host, folder: &folder, state: &state, reception };
    let prepared = proof.setup.as_ref().map(|setup| context.prepare(setup, &proof.commit)).transpose()?;
    if let Some(prepared) = &prepared {
        profile = resolve(order, proof, &files.with_setup(prepared.layer())?)?;
    }
    let variables: Vec<_> = std::env::vars_os().collect();
    let mut handed = Vec::new();
    order.export_trace(&mut handed);
    let (mut times, mut from) = (Vec::new(), 0);
    let proof = prove(
        &ProofRun {
            folder: &folder,
            candidate: ProofCandidate::Commit(&proof.commit),
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
            ProofEvent::Started { .. } => from = wall_micros(),
            ProofEvent::Ended { .. } => times.push(TimeSpan { from, to: wall_micros() }),
        },
    )?;
    Ok(ProofOutcome {
        evidence: evidence::from_proof(&proof, &folder.root),
        proof: serde_json::to_value(&proof)?,
        times,
    })
}

/// What the profile means for the tree the agent started from. What the repository has of its own must be
/// trusted, text by text.
fn resolve(
    order: &JobOrder,
    proof: &ProofOrder,
    sight: &ProjectFiles,
) -> Result<ResolvedProfile, Box<dyn Error>> {
    let own = proof.profiles.as_ref().map(|folder| order.root.join(folder));
    let resolved = ProfileLibrary::new(own).resolve(&proof.profile, sight)?;
    let trusts = |text: &str| match &proof.trust {
        ProfileTrust::All => true,
        ProfileTrust::These(known) => known.contains(&ETag::of(text.as_bytes()).to_string()),
    };
    resolved.check_trust(&order.root, |_, text| trusts(text))?;
    Ok(resolved)
}
