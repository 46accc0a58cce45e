//! The machine's accounts, from its files: a program that is linked statically can't ask elsewhere.

#![allow(clippy::disallowed_methods, reason = "opens the machine's accounts")]

use std::fs;
use std::path::PathBuf;

/// One account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub gid: u32,
    pub home: PathBuf,
}

impl Account {
    /// The account of a user, if the user has one.
    pub fn of(uid: u32) -> Option<Self> {
        account(&fs::read_to_string("/etc/passwd").unwrap_or_default(), uid)
    }

    /// The groups the account is in besides its own.
    pub fn groups(&self) -> Vec<u32> {
        groups(&fs::read_to_string("/etc/group").unwrap_or_default(), &self.name)
    }
}

/// A user as people call them: by name, or by number.
pub fn name_of(uid: u32) -> String {
    Account::of(uid).map_or_else(|| format!("user {uid}"), |account| account.name)
}

fn account(accounts: &str, uid: u32) -> Option<Account> {
    accounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, id, gid, _, home, ..] = fields[..] else { return None };
        let gid = gid.parse().ok()?;
        (id.parse() == Ok(uid)).then(|| Account { name: name.to_owned(), gid, home: home.into() })
    })
}

fn groups(groups: &str, name: &str) -> Vec<u32> {
    let of = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, id, members] = fields[..] else { return None };
        members.split(',').any(|member| member == name).then(|| id.parse().ok())?
    };
    groups.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_and_groups_are_found_by_number_and_by_name() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nbroken\nme:x:1000:100::/home/me:/bin/sh\n";
        let me = Account { name: "me".into(), gid: 100, home: "/home/me".into() };
        assert_eq!(account(accounts, 1000), Some(me));
        assert_eq!(account(accounts, 1), None);
        assert_eq!(groups("docker:x:998:you,me\nadm:x:4:you\nme:x:1000:\nbad\n", "me"), [998]);
    }
}
