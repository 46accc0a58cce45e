//! Projects as people have them, with dependencies from a registry.

use std::process::Command;

use crate::repository::skip;

/// A Node project with one dependency, as it comes from a clone.
pub const NODE: &[(&str, &str)] = &[
    (
        "package.json",
        "{\"name\":\"shop\",\"version\":\"1.0.0\",\"dependencies\":{\"is-number\":\"7.0.0\"},\"scripts\":{\"test\":\"node --test\"}}\n",
    ),
    (
        "package-lock.json",
        "{\"name\":\"shop\",\"version\":\"1.0.0\",\"lockfileVersion\":3,\"requires\":true,\"packages\":{\"\":{\"name\":\"shop\",\"version\":\"1.0.0\",\"dependencies\":{\"is-number\":\"7.0.0\"}},\"node_modules/is-number\":{\"version\":\"7.0.0\",\"integrity\":\"sha512-41Cifkg6e8TylSpdtTpeLVMqvSBEVzTttHvERD741+pnZ8ANv0004MRL43QKPDlK9cGvNp6NZWZUBlbGXYxxng==\",\"engines\":{\"node\":\">=0.12.0\"}}}}\n",
    ),
    (".gitignore", "node_modules/\n"),
    (
        "src/index.js",
        "const isNumber = require(\"is-number\");\nmodule.exports = (value) => isNumber(value);\n",
    ),
    (
        "test/index.test.js",
        "require(\"node:test\")(\"numbers\", () => require(\"node:assert\").ok(require(\"../src\")(5)));\n",
    ),
];

/// Whether a program is on PATH.
pub fn has(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .is_ok_and(|found| found.status.success())
}

/// Whether a registry answers at all: without a network, nothing can be installed anywhere.
pub fn reaches(test: &str, address: &str) -> bool {
    let line = format!("timeout 30 bash -c 'exec 3<>/dev/tcp/{}/443'", address);
    let reached = Command::new("sh").args(["-c", &line]).output().is_ok_and(|tried| tried.status.success());
    if !reached {
        skip(test, &format!("{address} can't be reached"));
    }
    reached
}
