//! The `agency.toml` that `agency init` writes: the setup that the lock files suggest, and comments that say the rest.
//!
//! It is written once, where there is none, and a person reviews it (`agency trust`) before anything in it runs.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use agency_profiles::dependencies::{SuggestedSetup, suggest_setup};
use agency_profiles::project_files::ProjectFiles;
use agency_protocols::store::Effects;
use agency_sandbox::egress::look_up;

use crate::app::board::RepoContext;
use crate::app::configuration::FILE;
use crate::app::error::CommandError;

/// Whether the setup that the lock files suggest is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SetupChoice {
    /// A person at a terminal is asked; otherwise it is.
    #[default]
    Ask,
    Suggested,
    None,
}

/// Writes the first configuration, where there is something to configure. Returns its path, if it was written.
pub(crate) fn write(here: &RepoContext, choice: SetupChoice) -> Result<Option<&'static str>, CommandError> {
    let files = ProjectFiles::open(&here.folder.root).map_err(|error| CommandError::internal(&error))?;
    let suggested = suggest_setup(&files).filter(|_| !here.tree().exists(FILE));
    let Some(mut setup) = suggested else { return Ok(None) };
    let mirrors = addresses_of_mirrors(&setup.network);
    let mirror_note = match mirrors.is_empty() {
        true => "",
        false => {
            "# The addresses in the list are private ones, to which the names of the registries lead here: a mirror's, if yours.\n"
        }
    };
    setup.network.extend(mirrors);
    let question = || {
        format!("Agents and checks need the project's dependencies. Let `{}` install them?", setup.command)
    };
    let is_wanted = match choice {
        SetupChoice::Suggested => true,
        SetupChoice::None => false,
        SetupChoice::Ask => here.ask(&question())?.unwrap_or(true),
    };
    let text = text(&setup, is_wanted, mirror_note);
    here.update_files(|tree| {
        let mut effects = Effects::none();
        if !tree.exists(FILE) {
            effects.create(FILE, &text);
        }
        Ok(((), effects))
    })?;
    Ok(Some(FILE))
}

/// How long the names of registries are looked up, all together.
const LOOKING_UP: Duration = Duration::from_secs(5);

/// Private addresses to which the names of registries lead here: a company's mirror. A sandbox reaches them only if they
/// are listed as such. A name that can't be looked up now is what it is.
fn addresses_of_mirrors(hosts: &[String]) -> Vec<String> {
    let until = Instant::now() + LOOKING_UP;
    let of_host = |host: &String| {
        let (name, port) = host.rsplit_once(':')?;
        let found = look_up(name, until).ok()?;
        let mirrors = found.into_iter().filter(|address| is_of_a_mirror(*address));
        Some(mirrors.map(|address| format!("{address}:{port}")).collect::<Vec<_>>())
    };
    let mirrors: BTreeSet<String> = hosts.iter().filter_map(of_host).flatten().collect();
    mirrors.into_iter().collect()
}

/// Whether an address is one that networks give to servers of their own. Those of this machine, of carriers and of a
/// cloud's metadata are none.
fn is_of_a_mirror(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_private() || address.is_documentation())
}

fn text(setup: &SuggestedSetup, is_wanted: bool, mirror_note: &str) -> String {
    let (comment, setup) = (if is_wanted { "" } else { "# " }, setup.to_toml());
    format!(
        r#"# How agents run here. `agency config explain` shows every key. Nothing in this file runs before a person has
# reviewed it with `agency trust`.

[run]
# parallel = 4              # how many agents work at the same time
# check_base = "never"      # start agents without running the checks on the branch first

[workspace]
# Installs the project's dependencies, which git does not track: once, and again when one of these files changes.
# It runs in a sandbox that reaches only the listed hosts.
{mirror_note}{comment}{setup}

# Agents by name (`agency agents`) need no configuration. Another program, or other limits:
# [agents.claude-code]
# timeout = "45m"
# [roles]
# auditor = "gemini"        # judges the work of the others before it lands
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_that_a_network_gives_its_own_servers_is_a_mirrors() {
        let is_one = |text: &str| is_of_a_mirror(text.parse().expect("an address"));
        assert!(is_one("10.0.0.5") && is_one("192.168.1.9") && is_one("172.16.0.1"));
        for other in
            ["127.0.0.1", "169.254.169.254", "100.100.100.200", "168.63.129.16", "8.8.8.8", "::1", "fd00::1"]
        {
            assert!(!is_one(other), "{other}");
        }
    }

    #[test]
    fn what_is_written_is_a_configuration_and_says_what_was_chosen() {
        let setup = SuggestedSetup {
            command: "npm ci".into(),
            cache_key: vec!["package-lock.json".into()],
            network: vec!["registry.npmjs.org:443".into()],
        };
        let read = |is_wanted| text(&setup, is_wanted, "# a note\n").parse::<toml::Table>().expect("TOML");
        assert_eq!(read(true)["workspace"]["setup"]["command"].as_str(), Some("npm ci"));
        assert!(read(false)["workspace"].as_table().is_some_and(toml::Table::is_empty));
    }
}
