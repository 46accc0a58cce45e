//! The lists behind [`super::protected`]: names that tools obey, dot-files that no tool can be made to run, and
//! caches that tools leave behind.
//!
//! All names are in lower case, because matching ignores case. One `*` in a name stands for anything.

/// One name that a tool obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListedName {
    /// A file, or a directory with everything in it.
    pub(super) path: &'static str,
    /// Whether its reader honours it in every directory, or only at the top of the workspace.
    pub(super) nested: bool,
    pub(super) reader: &'static str,
}

const fn top(path: &'static str, reader: &'static str) -> ListedName {
    ListedName { path, nested: false, reader }
}

const fn anywhere(path: &'static str, reader: &'static str) -> ListedName {
    ListedName { path, nested: true, reader }
}

/// Names that tools obey when a user opens, enters, commits or pushes the repository.
///
/// A name that begins with a dot is protected whether it is listed or not; here it gets the name of its reader,
/// and where one part of a folder steers more than the rest, that part a name of its own.
pub(super) const OBEYED: &[ListedName] = &[
    // Agents: settings, hooks, tools, and the instructions they read unasked.
    anywhere(".claude", "Claude Code"),
    anywhere("claude.md", "Claude Code"),
    anywhere("claude.local.md", "Claude Code"),
    anywhere(".codex", "Codex"),
    anywhere("codex.md", "Codex"),
    anywhere("agents.md", "coding agents"),
    anywhere("agents.override.md", "coding agents"),
    anywhere("agents.local.md", "coding agents"),
    anywhere("agent.md", "coding agents"),
    anywhere(".agents", "coding agents"),
    anywhere(".agent", "Antigravity"),
    anywhere(".mcp.json", "coding agents"),
    anywhere(".gemini", "Gemini CLI"),
    anywhere("gemini.md", "Gemini CLI"),
    anywhere("qwen.md", "Qwen Code"),
    anywhere("crush.md", "Crush"),
    anywhere("crush.local.md", "Crush"),
    anywhere("crush.json", "Crush"),
    anywhere("warp.md", "Warp"),
    anywhere("iflow.md", "iFlow"),
    anywhere("replit.md", "Replit"),
    anywhere(".cursor", "Cursor"),
    anywhere(".cursorrules", "Cursor"),
    anywhere(".windsurf", "Windsurf"),
    anywhere(".windsurfrules", "Windsurf"),
    anywhere(".devin", "Devin"),
    anywhere(".kiro", "Kiro"),
    anywhere(".zed", "Zed"),
    anywhere(".clinerules", "Cline"),
    anywhere(".continue", "Continue"),
    anywhere(".opencode", "opencode"),
    anywhere("opencode.json", "opencode"),
    anywhere("opencode.jsonc", "opencode"),
    anywhere(".aider.conf.yml", "aider"),
    anywhere("sweep.yaml", "Sweep"),
    anywhere("greptile.json", "Greptile"),
    // Editors, shells and desktops, on opening or entering a folder.
    anywhere(".vscode", "Visual Studio Code"),
    anywhere("*.code-workspace", "Visual Studio Code"),
    anywhere(".idea", "JetBrains IDEs"),
    anywhere(".devcontainer", "development containers"),
    anywhere(".devcontainer.json", "development containers"),
    anywhere("devfile.yaml", "development containers"),
    anywhere("devfile.yml", "development containers"),
    anywhere(".envrc", "direnv"),
    anywhere("mise.toml", "mise"),
    anywhere("mise.*.toml", "mise"),
    anywhere("mise/config*.toml", "mise"),
    anywhere("mise/conf.d", "mise"),
    anywhere(".mise.toml", "mise"),
    anywhere(".vimrc", "vim"),
    anywhere("_vimrc", "vim"),
    anywhere(".exrc", "vim"),
    anywhere("_exrc", "vim"),
    anywhere(".nvim.lua", "neovim"),
    anywhere(".dir-locals.el", "Emacs"),
    anywhere(".rprofile", "R"),
    anywhere("desktop.ini", "Windows Explorer"),
    anywhere("autorun.inf", "Windows"),
    // Git and its hooks.
    anywhere(".gitattributes", "git"),
    anywhere(".gitmodules", "git"),
    anywhere(".gitconfig", "git"),
    anywhere(".githooks", "git"),
    anywhere(".husky", "git hooks"),
    anywhere(".pre-commit-config.yaml", "git hooks"),
    anywhere("lefthook.*", "lefthook"),
    anywhere("lefthook-local.*", "lefthook"),
    anywhere("prek.toml", "prek"),
    anywhere("hk.pkl", "hk"),
    anywhere("captainhook.json", "CaptainHook"),
    anywhere("grumphp.yml", "GrumPHP"),
    anywhere("grumphp.yaml", "GrumPHP"),
    anywhere("simple-git-hooks.*", "simple-git-hooks"),
    // Services that run on a push.
    anywhere("codeowners", "code review services"),
    top(".github", "GitHub"),
    top(".github/workflows", "GitHub Actions"),
    top(".github/actions", "GitHub Actions"),
    top(".gitlab", "GitLab"),
    top(".gitlab-ci.yml", "GitLab CI"),
    top(".gitea", "Gitea"),
    top(".gitea/workflows", "Gitea Actions"),
    top(".forgejo", "Forgejo"),
    top(".forgejo/workflows", "Forgejo Actions"),
    top(".circleci", "CircleCI"),
    top("circle.yml", "CircleCI"),
    top(".buildkite", "Buildkite"),
    top("buildkite.yml", "Buildkite"),
    top("buildkite.yaml", "Buildkite"),
    top(".woodpecker", "Woodpecker"),
    top(".woodpecker.yml", "Woodpecker"),
    top(".drone.yml", "Drone"),
    top(".travis.yml", "Travis CI"),
    top(".cirrus.yml", "Cirrus CI"),
    anywhere("jenkinsfile", "Jenkins"),
    anywhere("jenkinsfile.*", "Jenkins"),
    anywhere("jenkinsfile-*", "Jenkins"),
    anywhere("*.jenkinsfile", "Jenkins"),
    anywhere("azure-pipelines*.yml", "Azure Pipelines"),
    anywhere("azure-pipelines*.yaml", "Azure Pipelines"),
    top("azure-pipelines", "Azure Pipelines"),
    top("bitbucket-pipelines.yml", "Bitbucket Pipelines"),
    top("appveyor.yml", "AppVeyor"),
    top("wercker.yml", "Wercker"),
    top("screwdriver.yaml", "Screwdriver"),
    top("bitrise.yml", "Bitrise"),
    top("codemagic.yaml", "Codemagic"),
    top("codeship-*.yml", "CodeShip"),
    anywhere("buildspec*.yml", "AWS CodeBuild"),
    anywhere("buildspec*.yaml", "AWS CodeBuild"),
    top("amplify.yml", "AWS Amplify"),
    anywhere("cloudbuild*.yaml", "Google Cloud Build"),
    anywhere("cloudbuild*.yml", "Google Cloud Build"),
    anywhere("cloudbuild*.json", "Google Cloud Build"),
    anywhere("netlify.toml", "Netlify"),
    anywhere("vercel.json", "Vercel"),
    anywhere("railway.toml", "Railway"),
    anywhere("railway.json", "Railway"),
    top("render.yaml", "Render"),
    top("heroku.yml", "Heroku"),
    top("renovate.json", "Renovate"),
    top("renovate.json5", "Renovate"),
];

/// Dot-files that are work like any other: their readers take patterns, names or numbers from them, and nothing
/// that could be run. A name is here only with its reader and the reason.
pub(super) const INERT: &[&str] = &[
    // git, gitignore(5): patterns of names, one a line. Honest work edits it all the time.
    ".gitignore",
    // No reader: a file that keeps an otherwise empty folder in git.
    ".gitkeep",
    ".keep",
    // git, gitmailmap(5): names and addresses of authors.
    ".mailmap",
    // git blame --ignore-revs-file, blame.ignoreRevsFile: names of commits.
    ".git-blame-ignore-revs",
    // Mercurial, hgignore(5): patterns of names.
    ".hgignore",
    // docker build, podman build: patterns of names that are left out of the context.
    ".dockerignore",
    // npm pack: patterns of names, as in .gitignore.
    ".npmignore",
    // Formatters and linters: patterns of names that they pass over.
    ".eslintignore",
    ".prettierignore",
    ".stylelintignore",
    ".markdownlintignore",
    // helm package, gcloud, vercel: patterns of names that are not uploaded.
    ".helmignore",
    ".gcloudignore",
    ".vercelignore",
    // Editors, editorconfig.org: widths, line endings and character sets.
    ".editorconfig",
    // rustfmt and clang-format: how text is laid out; neither has an option that names a program.
    ".rustfmt.toml",
    ".clang-format",
    // GitHub Pages: that it is there says that Jekyll is not run.
    ".nojekyll",
    // No reader: what a .env may hold, for people. Loaders read .env, not these.
    ".env.example",
    ".env.sample",
];

/// Folders that tools fill for themselves, exactly so written. What is new under such a name is dropped.
pub(super) const CACHE_FOLDERS: &[&str] = &[
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".pytype",
    ".tox",
    ".nox",
    ".hypothesis",
    ".ipynb_checkpoints",
    ".gradle",
    ".kotlin",
    ".cache",
    ".nyc_output",
    ".turbo",
    ".next",
    ".nuxt",
    ".parcel-cache",
    ".svelte-kit",
    ".angular",
    ".docusaurus",
    ".sass-cache",
    ".dart_tool",
    ".terraform",
    ".bundle",
    ".phpunit.cache",
    ".clangd",
    ".ccls-cache",
    ".stack-work",
    ".bloop",
    ".metals",
    ".npm",
    ".pnpm-store",
];

/// The same for files.
pub(super) const CACHE_FILES: &[&str] = &[
    ".ds_store",
    "thumbs.db",
    ".coverage",
    ".eslintcache",
    ".stylelintcache",
    ".phpunit.result.cache",
    ".*.swp",
    ".*.swo",
    ".nfs*",
];
