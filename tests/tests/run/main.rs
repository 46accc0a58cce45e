//! `agency run`, through the real binary: what lands, who may stop it, and what is left after any crash.

mod chaos;
mod control_plane;
mod full;
mod life;
mod misbehaving;
