//! The tools of a repository, detected by its lock files: the values of `{manager}` and the other placeholders.

use super::{ProjectManifests, table_at};

impl ProjectManifests<'_> {
    /// The value of a placeholder here, and a note for a person about the choice.
    pub(crate) fn placeholder(&self, name: &str) -> Option<(&'static str, Option<String>)> {
        let wrapper = |file: &str, path, other| if self.sight.find(file).is_some() { path } else { other };
        match name {
            "manager" => Some(self.node_manager()),
            "python" => Some((self.python(), None)),
            "maven" => Some((wrapper("mvnw", "./mvnw", "mvn"), None)),
            "gradle" => Some((wrapper("gradlew", "./gradlew", "gradle"), None)),
            _ => None,
        }
    }

    fn node_manager(&self) -> (&'static str, Option<String>) {
        const LOCKS: [(&str, &str); 6] = [
            ("pnpm-lock.yaml", "pnpm"),
            ("yarn.lock", "yarn"),
            ("bun.lock", "bun"),
            ("bun.lockb", "bun"),
            ("package-lock.json", "npm"),
            ("npm-shrinkwrap.json", "npm"),
        ];
        let package = self.json("package.json");
        let named = package.as_ref().and_then(|package| package.get("packageManager")?.as_str());
        let named = named.and_then(|text| {
            let name = text.split('@').next()?;
            ["pnpm", "yarn", "bun", "npm"].into_iter().find(|known| *known == name)
        });
        if let Some(named) = named {
            return (named, None);
        }
        let locks: Vec<_> = LOCKS.iter().filter(|(file, _)| self.sight.find(file).is_some()).collect();
        let manager = locks.first().map_or("npm", |(_, manager)| *manager);
        let others = locks.iter().any(|(_, other)| *other != manager);
        let files = || locks.iter().map(|(file, _)| *file).collect::<Vec<_>>().join(", ");
        let note = others.then(|| {
            format!("there are lock files of several package managers ({}); {manager} is used", files())
        });
        (manager, note)
    }

    /// `--no-sync`: the environment is taken as it is, since nothing could be fetched for it.
    fn python(&self) -> &'static str {
        const UV: &str = "uv run --offline --no-sync python";
        const CHOICES: [(&str, &str); 5] = [
            ("uv.lock", UV),
            ("poetry.lock", "poetry run python"),
            ("pdm.lock", "pdm run python"),
            ("Pipfile.lock", "pipenv run python"),
            ("Pipfile", "pipenv run python"),
        ];
        const TABLES: [(&str, &str); 3] =
            [("tool.uv", UV), ("tool.poetry", "poetry run python"), ("tool.pdm", "pdm run python")];
        let pyproject = self.toml("pyproject.toml").unwrap_or_default();
        let by_file = CHOICES.iter().find(|(file, _)| self.sight.find(file).is_some());
        let by_table = || TABLES.iter().find(|(table, _)| table_at(&pyproject, table).is_some());
        if let Some((_, command)) = by_file.or_else(by_table) {
            return command;
        }
        if self.sight.find(".venv").is_some() {
            ".venv/bin/python"
        } else if self.sight.find("venv").is_some() {
            "venv/bin/python"
        } else {
            "python3"
        }
    }
}
