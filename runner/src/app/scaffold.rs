//! A board, made where there is none, and more of one.

use agency_profiles::detect;
use agency_profiles::project_files::ProjectFiles;
use agency_protocols::codifica::{self, Codifica, CodificaSettings};
use agency_protocols::detect::Protocol;
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::layout::ROOT;
use agency_protocols::kodingx::scaffold::{
    BoardComponent, OverwritePolicy, ScaffoldAction, ScaffoldChange, ScaffoldContext, ScaffoldOptions,
    scaffold,
};
use serde::Serialize;

use crate::app::board::{Caller, RepoContext, board_error};
use crate::app::error::CommandError;
use crate::app::first_configuration::{self, SetupChoice};

/// What was written. The protocols name their files in their own ways.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ScaffoldAnswer {
    Kodingx { version: u32, files: Vec<ScaffoldChange> },
    Codifica { version: u32, files: Vec<codifica::scaffold::ScaffoldedFile> },
}

/// A board that is asked for.
pub(crate) struct ScaffoldRequest {
    pub(crate) options: ScaffoldOptions,
    /// Whether what is generated is written anew where there is a board.
    pub(crate) force: bool,
    /// What becomes of the setup that the lock files suggest.
    pub(crate) setup: SetupChoice,
}

/// Makes a board.
pub(crate) fn init(
    here: &RepoContext,
    who: &Caller,
    request: &ScaffoldRequest,
) -> Result<ScaffoldAnswer, CommandError> {
    if who.protocol == Some(Protocol::Codifica) {
        return init_codifica(here, request);
    }
    check_fresh(here, who, request.force, "init")?;
    let mut made = build(here, &BoardComponent::FULL, overwrite(request.force), &request.options)?;
    if let Some(path) = first_configuration::write(here, request.setup)?
        && let ScaffoldAnswer::Kodingx { files, .. } = &mut made
    {
        files.push(ScaffoldChange { path: path.to_owned(), what: ScaffoldAction::Made, why: String::new() });
    }
    Ok(made)
}

/// Puts a board beside what a repository has.
pub(crate) fn install(
    here: &RepoContext,
    who: &Caller,
    request: &ScaffoldRequest,
    parts: &[BoardComponent],
) -> Result<ScaffoldAnswer, CommandError> {
    check_fresh(here, who, request.force, "install")?;
    build(here, parts, overwrite(request.force), &request.options)
}

/// Adds parts to a board.
pub(crate) fn upgrade(
    here: &RepoContext,
    who: &Caller,
    parts: &[BoardComponent],
) -> Result<ScaffoldAnswer, CommandError> {
    let protocol = here.board(who)?.protocol();
    if protocol != Protocol::Kodingx.as_str() {
        return Err(CommandError::usage(format!("the protocol `{protocol}` has no `upgrade`")));
    }
    build(here, parts, OverwritePolicy::Never, &ScaffoldOptions::default())
}

fn overwrite(force: bool) -> OverwritePolicy {
    if force { OverwritePolicy::Generated } else { OverwritePolicy::Never }
}

/// Refuses a place that has a board already, and protocols whose boards are not made this way.
fn check_fresh(here: &RepoContext, who: &Caller, force: bool, verb: &str) -> Result<(), CommandError> {
    match who.protocol {
        None | Some(Protocol::Kodingx) => {}
        Some(Protocol::Codifica) => {
            return Err(CommandError::usage(format!("the protocol `codifica` has no `{verb}`")));
        }
        Some(other) => {
            return Err(CommandError::usage(format!("the protocol `{other}` is not supported yet")));
        }
    }
    if here.tree().exists(ROOT) && !force {
        let hint = format!(
            "`agency {verb} --force` writes what is generated anew, `agency upgrade` adds what is missing"
        );
        return Err(
            CommandError::usage(format!("{ROOT}/ is there already; nothing was changed")).with_hint(hint)
        );
    }
    Ok(())
}

fn build(
    here: &RepoContext,
    parts: &[BoardComponent],
    overwrite: OverwritePolicy,
    options: &ScaffoldOptions,
) -> Result<ScaffoldAnswer, CommandError> {
    let place = surroundings(here, options)?;
    let files = here.update_files(|tree| scaffold(tree, parts, overwrite, options, &place, &here.now))?;
    // What was written must be a board.
    KodingX::open(here.tree()).map_err(board_error)?;
    Ok(ScaffoldAnswer::Kodingx { version: 1, files })
}

/// Nothing of it is committed: a person looks at a new board first.
fn init_codifica(here: &RepoContext, request: &ScaffoldRequest) -> Result<ScaffoldAnswer, CommandError> {
    use codifica::contract::MARKER;
    let ScaffoldOptions { orchestrator, builders, license_mode, environment, role_mode } = &request.options;
    if orchestrator.is_some() || license_mode.is_some() || environment.is_some() || role_mode.is_some() {
        return Err(CommandError::usage("a board of Codifica is made with --builders alone"));
    }
    if here.tree().exists(MARKER) && !request.force {
        return Err(CommandError::usage(format!("{MARKER} is there already; nothing was changed"))
            .with_hint(
                "`agency init --protocol codifica --force` writes it and the specification anew; tasks stay",
            ));
    }
    let agents = builders.clone().unwrap_or_default();
    let mut files = here.update_files(|tree| codifica::scaffold::scaffold(tree, &agents, request.force))?;
    if let Some(path) = first_configuration::write(here, request.setup)? {
        files.push(codifica::scaffold::ScaffoldedFile { path: path.to_owned(), made: true });
    }
    // What was written must be a board.
    Codifica::open(here.tree(), CodificaSettings::default()).map_err(board_error)?;
    Ok(ScaffoldAnswer::Codifica { version: 1, files })
}

fn surroundings(here: &RepoContext, options: &ScaffoldOptions) -> Result<ScaffoldContext, CommandError> {
    let root = &here.folder.root;
    let sight = ProjectFiles::open(root).map_err(|error| CommandError::internal(&error))?;
    let detected = detect::detect_environments(&sight);
    let wanted = options.environment.as_deref().map(|name| {
        detect::profile_for(name).map(|profile| vec![profile]).ok_or_else(|| {
            CommandError::usage(format!("there is no environment `{name}` with a profile of its own"))
        })
    });
    let names: Vec<String> = match wanted.transpose()? {
        Some(profiles) => profiles.into_iter().map(str::to_owned).collect(),
        None => detected
            .iter()
            .filter_map(|found| detect::profile_for(found.environment))
            .map(str::to_owned)
            .collect(),
    };
    let profiles = names
        .into_iter()
        .filter_map(|name| Some((name.clone(), agency_profiles::builtin::text(&name)?.to_owned())))
        .collect();
    Ok(ScaffoldContext {
        project: root
            .file_name()
            .map_or_else(|| "project".to_owned(), |name| name.to_string_lossy().into_owned()),
        timezone: jiff::tz::TimeZone::system().iana_name().map(str::to_owned),
        environment: options
            .environment
            .clone()
            .or_else(|| detected.first().map(|found| found.environment.to_owned())),
        generator: env!("CARGO_PKG_VERSION").to_owned(),
        profiles,
    })
}
