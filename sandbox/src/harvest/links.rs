//! Links, followed before a change is judged.
//!
//! Where `AGENTS.md` is a link to `docs/guide.md`, a change to the latter changes what agents obey. So a path
//! is as protected as every protected name that leads to it, through however many links: of the tree as it was, and
//! of the tree as it would be. A link is followed here by names alone, over all links of a tree, so that the harvest
//! and a landing follow it alike, and nothing on the disk is opened for it.
//!
//! A link to an absolute path is not followed: in another checkout it leads elsewhere.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::protected::{self, ProtectedMatch};
use super::tree::PATH_MAX;
use super::violation::ViolationReason;
use crate::path::RelPath;
use crate::scope::Scope;

/// How many links one name may lead through: the kernel's own bound.
const MOST_HOPS: usize = 40;
/// How many protected names that lead to one path are remembered. With more, only spelling the path opens it.
const MOST_ALIASES: usize = 16;
/// How many bytes of paths are put together to follow all links of a tree. A tree with more is tangled on purpose.
const MOST_BYTES: usize = 256 << 20;

/// Every link of a tree: where it is, and what it says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SymlinkMap(BTreeMap<RelPath, Vec<u8>>);

impl SymlinkMap {
    pub fn insert(&mut self, path: RelPath, target: Vec<u8>) {
        self.0.insert(path, target);
    }

    pub fn remove(&mut self, path: &RelPath) {
        self.0.remove(path);
    }

    /// Where a name leads.
    fn follow(&self, path: &RelPath, budget: &mut usize) -> Result<LinkPath, TooManyLinks> {
        let mut way = LinkPath { through: Vec::new(), end: None };
        let mut left: VecDeque<&[u8]> = path.components().collect();
        let mut here = RelPath::root();
        while let Some(name) = left.pop_front() {
            match name {
                b"" | b"." => continue,
                b".." => match here.parent() {
                    Some(above) => here = above,
                    None => return Ok(way),
                },
                name => {
                    let next = here.join(name);
                    *budget = budget.checked_sub(next.as_bytes().len()).ok_or(TooManyLinks)?;
                    let Some(target) = self.0.get(&next) else {
                        here = next;
                        if here.as_bytes().len() > PATH_MAX {
                            return Ok(way);
                        }
                        continue;
                    };
                    way.through.push(next);
                    if target.first() == Some(&b'/') || way.through.len() > MOST_HOPS {
                        return Ok(way);
                    }
                    for name in target.rsplit(|byte| *byte == b'/') {
                        left.push_front(name);
                    }
                }
            }
        }
        way.end = Some(here);
        Ok(way)
    }
}

/// Where a name leads: through these links, to this end; `None` when that is out of the tree or nowhere.
struct LinkPath {
    through: Vec<RelPath>,
    end: Option<RelPath>,
}

/// There are more links through links than a person would make in good faith.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyLinks;

/// A protected name that leads to a path.
#[derive(Debug)]
struct ProtectedAlias {
    link: RelPath,
    found: ProtectedMatch,
}

/// Every path that a protected name leads to, before or after a change.
#[derive(Debug)]
pub struct ProtectedAliases<'a> {
    scope: &'a Scope,
    after: &'a SymlinkMap,
    /// Links on the way: a change to one leads the name elsewhere.
    through: HashMap<RelPath, Vec<ProtectedAlias>>,
    /// The ends, with everything below them.
    ends: HashMap<RelPath, Vec<ProtectedAlias>>,
    budget: usize,
}

impl<'a> ProtectedAliases<'a> {
    /// Follows every link at a protected name, in both trees.
    pub fn find(scope: &'a Scope, before: &SymlinkMap, after: &'a SymlinkMap) -> Result<Self, TooManyLinks> {
        let (through, ends) = (HashMap::new(), HashMap::new());
        let mut aliases = Self { scope, after, through, ends, budget: MOST_BYTES };
        for links in [before, after] {
            for link in links.0.keys() {
                if let Some(found) = protected::protected(&scope.protected, link) {
                    let way = links.follow(link, &mut aliases.budget)?;
                    aliases.add(link, found, way);
                }
            }
            if before == after {
                break;
            }
        }
        Ok(aliases)
    }

    fn add(&mut self, link: &RelPath, found: ProtectedMatch, way: LinkPath) {
        let alias = || ProtectedAlias { link: link.clone(), found: found.clone() };
        let add = |aliases: &mut Vec<ProtectedAlias>| {
            if aliases.len() < MOST_ALIASES {
                aliases.push(alias());
            }
        };
        for on_the_way in way.through.into_iter().filter(|one| one != link) {
            add(self.through.entry(on_the_way).or_default());
        }
        // A folder whose only merit is a dot may hold a link to the folder around it (`.gopath/src/x -> ../..`):
        // that would protect everything.
        if let Some(end) = way.end.filter(|end| found.listed || !link.is_within(end)) {
            add(self.ends.entry(end).or_default());
        }
    }

    /// Why a changed path may not change because of a name that leads to it.
    pub fn judge(&self, path: &RelPath) -> Option<ViolationReason> {
        if let Some(aliases) = self.through.get(path) {
            return self.refuse(aliases, path, path);
        }
        if self.ends.is_empty() {
            return None;
        }
        let mut ends = std::iter::once(path.clone()).chain(path.ancestors());
        ends.find_map(|end| self.refuse(self.ends.get(&end)?, path, &end))
    }

    /// The aliases lead to `end`, which is the path or a folder above it. A scope opens the path by spelling it as far
    /// as it is protected, or by opening every alias itself.
    fn refuse(&self, aliases: &[ProtectedAlias], path: &RelPath, end: &RelPath) -> Option<ViolationReason> {
        let depth = end.components().count();
        aliases.iter().find_map(|alias| {
            let seen = path.components().skip(depth).fold(alias.link.clone(), |seen, name| seen.join(name));
            let found =
                protected::protected(&self.scope.protected, &seen).unwrap_or_else(|| alias.found.clone());
            let below = found.end.saturating_sub(alias.link.components().count());
            let spelled = protected::names_explicitly(self.scope, path, (depth + below).max(1))
                || (aliases.len() < MOST_ALIASES
                    && protected::names_explicitly(self.scope, &seen, found.end));
            (!spelled).then(|| found.reason(self.scope, path, Some(alias.link.clone())))
        })
    }

    /// Why a new link may not lead where it does: what is protected there is protected from here.
    pub fn judge_link(&mut self, path: &RelPath) -> Result<Option<ViolationReason>, TooManyLinks> {
        let way = self.after.follow(path, &mut self.budget)?;
        for led in way.through.iter().skip(1).chain(&way.end) {
            if let Some(found) = protected::protected(&self.scope.protected, led)
                && !protected::names_explicitly(self.scope, led, found.end)
            {
                return Ok(Some(found.reason(self.scope, led, Some(path.clone()))));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    fn links(all: &[(&str, &str)]) -> SymlinkMap {
        let mut links = SymlinkMap::default();
        all.iter().for_each(|(at, target)| links.insert(path(at), target.as_bytes().to_vec()));
        links
    }

    fn closed(write: &[&str], all: &[(&str, &str)], changed: &str) -> bool {
        let scope = Scope::parse(write, &[]).expect("globs");
        let links = links(all);
        ProtectedAliases::find(&scope, &links, &links).expect("found").judge(&path(changed)).is_some()
    }

    #[test]
    fn what_a_protected_name_leads_to_is_protected() {
        let file = [("AGENTS.md", "docs/guide.md")];
        assert!(closed(&["docs/**"], &file, "docs/guide.md"));
        assert!(!closed(&["docs/**"], &file, "docs/other.md"));
        assert!(!closed(&["docs/guide.md"], &file, "docs/guide.md"), "spelled where it lies");
        assert!(!closed(&["docs/**", "AGENTS.md"], &file, "docs/guide.md"), "spelled as it is obeyed");
        let folder = [(".claude", "tools/claude")];
        assert!(closed(&["tools/**"], &folder, "tools/claude/settings.json"));
        assert!(!closed(&["tools/claude/**"], &folder, "tools/claude/settings.json"));
        let two = [("AGENTS.md", "docs/guide.md"), ("CLAUDE.md", "AGENTS.md")];
        assert!(closed(&["docs/**", "AGENTS.md"], &two, "docs/guide.md"), "another name leads there, too");
        let deep = [(".github", "ci/hub")];
        assert!(closed(&["ci/hub/**"], &deep, "ci/hub/workflows/a.yml"), "no workflow is spelled");
        assert!(!closed(&["ci/hub/workflows/**"], &deep, "ci/hub/workflows/a.yml"));
    }

    #[test]
    fn every_link_on_the_way_is_protected_and_so_is_an_end_that_is_not_there_yet() {
        let chain = [("web/AGENTS.md", "../a"), ("a", "b/c"), ("b", "docs")];
        for changed in ["a", "b", "docs/c"] {
            assert!(closed(&["**"], &chain, changed), "{changed}");
        }
        assert!(!closed(&["**"], &chain, "c"));
    }

    #[test]
    fn links_that_lead_out_or_nowhere_end() {
        for target in ["/etc/passwd", "../x", "AGENTS.md", "d/../../x"] {
            assert!(!closed(&["**"], &[("AGENTS.md", target)], "x"), "{target}");
        }
    }

    #[test]
    fn a_dot_folder_that_leads_back_to_the_tree_does_not_close_it() {
        assert!(!closed(&["**"], &[(".gopath/src/me", "../..")], "src/main.go"));
        assert!(closed(&["**"], &[(".claude", ".")], "settings.json"));
    }

    #[test]
    fn a_new_link_to_a_protected_path_is_judged_as_that_path() {
        let told = |write: &[&str], all: &[(&str, &str)], made: &str| {
            let (scope, links) = (Scope::parse(write, &[]).expect("globs"), links(all));
            let mut aliases = ProtectedAliases::find(&scope, &SymlinkMap::default(), &links).expect("found");
            aliases.judge_link(&path(made)).expect("followed").is_some()
        };
        assert!(told(&["**"], &[("src/x", "../.envrc")], "src/x"));
        assert!(told(&["**"], &[("src/x", "y"), ("src/y", "../.github")], "src/x"));
        assert!(!told(&["**", ".envrc"], &[("src/x", "../.envrc")], "src/x"));
        assert!(!told(&["**"], &[("src/x", "../.gitignore")], "src/x"));
    }

    #[test]
    fn tangled_links_are_given_up_on() {
        let long = "d/../".repeat(800) + "x";
        let mut tangled = SymlinkMap::default();
        for number in 0..2000 {
            tangled.insert(
                path(&format!(".l/{number}")),
                format!("{}{}", long, (number + 1) % 2000).into_bytes(),
            );
        }
        let next = |number: usize| format!("{}{number}", "./".repeat(10));
        (0..2000)
            .for_each(|number| tangled.insert(path(&format!(".m/{number}")), next(number + 1).into_bytes()));
        let scope = Scope::parse(&["**"], &[]).expect("globs");
        let started = std::time::Instant::now();
        let _ = ProtectedAliases::find(&scope, &tangled, &tangled);
        assert!(started.elapsed() < std::time::Duration::from_secs(20));
        let mut budget = 100;
        assert!(tangled.follow(&path(".m/0"), &mut budget).is_err());
    }
}
