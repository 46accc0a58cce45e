//! A run as a trace: what a collector gets of it, what agents are told of it, and what it costs when nobody collects.

mod away;
mod handed_on;
mod told;
mod tree;
