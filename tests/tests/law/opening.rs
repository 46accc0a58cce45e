//! Who opens files by name.

use std::collections::BTreeSet;

use crate::{CRATES, root, sources};

/// Modules that open files by name, and whose those files are. Everything that a repository brings is opened by
/// `sandbox::untrusted`, by descriptor (`harvest::tree`, `profiles::sight`, `protocols::store::tree`), or by git.
const OPENS_BY_NAME: &[(&str, &str)] = &[
    ("profiles/src/junit.rs", "a log of ours"),
    ("profiles/src/prove/command_run.rs", "a log of ours"),
    ("protocols/src/timestamp.rs", "the machine's time zone"),
    ("protocols/src/store/lock.rs", "our own state"),
    ("protocols/src/store/jsonl.rs", "our own state"),
    ("protocols/src/store/folder_cache.rs", "our own state"),
    ("runner/src/cli/argument_file.rs", "what a person names on the command line"),
    ("runner/src/app/board/dialects.rs", "our own state"),
    ("runner/src/cli/board/verify.rs", "a log of ours"),
    ("runner/src/app/configuration/mod.rs", "the user's own configuration"),
    ("runner/src/app/configuration/trust.rs", "our own state"),
    ("runner/src/app/demo/outcomes.rs", "our own sample repository"),
    ("runner/src/app/queue/logs.rs", "our own records"),
    ("runner/src/app/http/mod.rs", "the user's own certificates"),
    ("runner/src/cli/run/view/tail.rs", "our own records"),
    ("sandbox/src/account.rs", "the machine's accounts"),
    ("sandbox/src/attest/shared_limits.rs", "/proc"),
    ("sandbox/src/landlock_level/process_set.rs", "/proc"),
    ("sandbox/src/landlock_level/replica.rs", "our own copy"),
    ("sandbox/src/boot.rs", "the kernel's"),
    ("sandbox/src/cgroup.rs", "the kernel's"),
    ("sandbox/src/fsmonitor/mod.rs", "the agent's, inside its sandbox"),
    ("sandbox/src/container/rendezvous.rs", "our own state"),
    ("sandbox/src/container/cleanup.rs", "our own state"),
    ("sandbox/src/doctor.rs", "the kernel's"),
    ("sandbox/src/egress/listeners.rs", "/proc"),
    ("sandbox/src/toolchains.rs", "the user's own"),
    ("sandbox/src/memory_watch.rs", "/proc"),
    ("sandbox/src/workspace/snapshot/delta.rs", "our own layers"),
    ("sandbox/src/workspace/snapshot/index_extensions.rs", "our own layers"),
    ("sandbox/src/workspace/snapshot/manifest.rs", "our own layers"),
    ("sandbox/src/workspace/snapshot/objects.rs", "our own helper repository"),
    ("sandbox/src/workspace/snapshot/store.rs", "our own layers"),
    ("sandbox/src/workspace/run_folder.rs", "our own state"),
    ("sandbox/src/workspace/state.rs", "our own state"),
    ("sandbox/src/durable.rs", "our own state"),
    ("supervisor/src/job/agent.rs", "our own records, and the outbox by descriptor"),
    ("supervisor/src/job/ended_agent.rs", "our own records"),
    ("supervisor/src/job/agent_policy.rs", "the user's own credentials"),
    ("supervisor/src/job/mod.rs", "our own records"),
    ("supervisor/src/job/shim_client.rs", "our own records"),
    ("supervisor/src/job/setup.rs", "our own records"),
    ("supervisor/src/job/placeholders.rs", "our own records"),
    ("supervisor/src/store_identity.rs", "our own state"),
    ("landing/src/index.rs", "our own helper repository, and a folder to sync"),
    ("landing/src/journal_file.rs", "our own state"),
    ("landing/src/repository.rs", "our own helper repositories"),
    ("landing/src/spare_objects.rs", "/proc"),
    ("landing/src/spare_store.rs", "our own state"),
    ("supervisor/src/driver/collect.rs", "our own records"),
    ("supervisor/src/failed_commands.rs", "our own logs"),
    ("supervisor/src/owner_lock.rs", "our own state"),
    ("supervisor/src/store/sqlite/store_file.rs", "our own state"),
];

/// What a repository brings is opened in one way. A module that opens files by name says whose they are, above.
#[test]
fn what_a_repository_brings_is_opened_in_one_way() {
    let opens = ["fs::read(", "fs::read_to_string(", "File::open(", "fs::copy("];
    let mut known: BTreeSet<&str> = OPENS_BY_NAME.iter().map(|(file, _)| *file).collect();
    for folder in CRATES {
        for (path, text) in sources(&format!("{folder}/src")) {
            let file = path.strip_prefix(root()).expect("below").display().to_string();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default().replace("refs::read(", "");
            let lines: Vec<&str> =
                code.lines().filter(|line| opens.iter().any(|open| line.contains(open))).collect();
            let allows = text.contains("#![allow(clippy::disallowed_methods, reason = ");
            assert!(!allows || OPENS_BY_NAME.iter().any(|(name, _)| *name == file), "{file} is not listed");
            if lines.is_empty() || file.contains("/tests/") {
                continue;
            }
            assert!(
                OPENS_BY_NAME.iter().any(|(name, _)| *name == file),
                "{file} opens files by name: whose are they?"
            );
            known.remove(file.as_str());
            for line in lines {
                let of_git = ["common.join", "real.git", "repository.git", "\".git\""]
                    .iter()
                    .any(|word| line.contains(word));
                assert!(!of_git, "{file}: {line}");
            }
        }
    }
    assert!(known.is_empty(), "nothing is opened by name any more in {known:?}");
}
