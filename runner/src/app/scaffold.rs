//! A board, made where there is none, and more of one.

use agency_profiles::detect as environments;
use agency_profiles::project_files::ProjectFiles;
use agency_protocols::codifica::{self, Codifica, CodificaSettings};
use agency_protocols::detect::{self, Protocol};
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::layout::{MANIFEST, ROOT};
use agency_protocols::kodingx::scaffold::{
    BoardComponent, OverwritePolicy, ScaffoldAction, ScaffoldChange, ScaffoldContext, ScaffoldOptions,
    scaffold,
};
use agency_protocols::names::AgentName;
use serde::Serialize;

use crate::app::agents::listing;
use crate::app::board::{ADDS_MANIFEST, Caller, RepoContext, board_error};
use crate::app::configuration::{ConfigOptions, Configuration};
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
    check_only_board(here, who, "init")?;
    check_fresh(here, who, request.force, "init")?;
    let mut options = request.options.clone();
    if options.builders.is_none() {
        options.builders = ask_for_builders(here)?;
    }
    let mut made = build(here, &BoardComponent::FULL, overwrite(request.force), &options)?;
    if let Some(path) = first_configuration::write(here, request.setup)?
        && let ScaffoldAnswer::Kodingx { files, .. } = &mut made
    {
        files.push(ScaffoldChange { path: path.to_owned(), what: ScaffoldAction::Made, why: String::new() });
    }
    Ok(made)
}

/// The installed agents that a person at a terminal wants to build; `None` if there is no person to ask.
fn ask_for_builders(here: &RepoContext) -> Result<Option<Vec<AgentName>>, CommandError> {
    let configuration = Configuration::load(&here.folder.root, &ConfigOptions::default())?;
    let mut builders = Vec::new();
    for name in listing::installed(&configuration) {
        match here.ask(&format!("`{name}` is installed. Is it to build here?"))? {
            None => return Ok(None),
            Some(true) => builders.extend(AgentName::parse(&name)),
            Some(false) => {}
        }
    }
    Ok((!builders.is_empty()).then_some(builders))
}

/// Puts a board beside what a repository has.
pub(crate) fn install(
    here: &RepoContext,
    who: &Caller,
    request: &ScaffoldRequest,
    parts: &[BoardComponent],
) -> Result<ScaffoldAnswer, CommandError> {
    check_only_board(here, who, "install")?;
    check_fresh(here, who, request.force, "install")?;
    build(here, parts, overwrite(request.force), &request.options)
}

/// Adds parts to a board. A board that was made by hand gets its manifest, too.
pub(crate) fn upgrade(
    here: &RepoContext,
    who: &Caller,
    parts: &[BoardComponent],
) -> Result<ScaffoldAnswer, CommandError> {
    if here.lacks_manifest(who)? {
        let parts: Vec<BoardComponent> = std::iter::once(BoardComponent::Core)
            .chain(parts.iter().copied().filter(|part| *part != BoardComponent::Core))
            .collect();
        return build(here, &parts, OverwritePolicy::Never, &ScaffoldOptions::default());
    }
    let protocol = here.board(who)?.protocol();
    if protocol != Protocol::Kodingx.as_str() {
        return Err(CommandError::usage(format!("the protocol `{protocol}` has no `upgrade`")));
    }
    build(here, parts, OverwritePolicy::Never, &ScaffoldOptions::default())
}

fn overwrite(force: bool) -> OverwritePolicy {
    if force { OverwritePolicy::Generated } else { OverwritePolicy::Never }
}

/// Refuses to put a second board beside one of another protocol, unless the protocol is named: writing commands would
/// then need `--protocol`.
fn check_only_board(here: &RepoContext, who: &Caller, verb: &str) -> Result<(), CommandError> {
    if who.protocol.is_some() {
        return Ok(());
    }
    let others: Vec<&str> = detect::detect(here.tree())
        .into_iter()
        .filter(|protocol| *protocol != Protocol::Kodingx)
        .map(Protocol::as_str)
        .collect();
    match others.is_empty() {
        true => Ok(()),
        false => Err(CommandError::usage(format!(
            "this repository has a board of {} already; nothing was changed",
            others.join(", ")
        ))
        .with_hint(format!(
            "`agency {verb} --protocol kodingx` adds a second board; from then on every command that writes needs --protocol"
        ))),
    }
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
        let hint = match here.lacks_manifest(who)? {
            true => format!("it has no {MANIFEST}: {ADDS_MANIFEST}"),
            false => format!(
                "`agency {verb} --force` writes what is generated anew, `agency upgrade --full` adds what is missing"
            ),
        };
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
    let detected = environments::detect_environments(&sight);
    let wanted = options.environment.as_deref().map(|name| {
        environments::profile_for(name).map(|profile| vec![profile]).ok_or_else(|| {
            CommandError::usage(format!("there is no environment `{name}` with a profile of its own"))
        })
    });
    let names: Vec<String> = match wanted.transpose()? {
        Some(profiles) => profiles.into_iter().map(str::to_owned).collect(),
        None => detected
            .iter()
            .filter_map(|found| environments::profile_for(found.environment))
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
