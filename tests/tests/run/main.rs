//! `agency run`, through the real binary: what lands, who may stop it, and what is left after any crash.

mod chaos;
mod control;
mod gate;
mod life;
mod people;
mod refusals;
