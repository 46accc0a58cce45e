//! Landing, with real git: every git there is here, as root, as an ordinary user, and as root in somebody
//! else's repository.

mod boards;
mod candidates;
mod checkouts;
mod costs;
mod crashes;
mod fence;
mod hostile;
mod many;
mod merging;
mod settled;
mod shapes;
mod spares;
mod support;
