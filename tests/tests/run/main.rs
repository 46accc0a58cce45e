//! `agency run`, through the real binary: what lands, who may stop it, and what is left after any crash.

mod adoption;
mod audit;
mod budget;
mod chaos;
mod contained;
mod control;
mod control_plane;
mod dry_run;
mod events;
mod fence;
mod full;
mod gate;
mod life;
mod misbehaving;
mod outside;
mod owner;
mod people;
mod refusals;
mod retention;
mod setup;
mod store;
mod troubled;
mod two;
mod view;
mod watch;
