//! Numbers that look random, and are the same every time.

/// A linear congruential generator: nothing here needs better ones.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From zero up to, and without, `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Says, when a test fails, how to do the same again: `suite` is a verb of `scripts/chaos`.
#[derive(Debug)]
pub struct SeedOnFailure {
    pub suite: &'static str,
    pub seed: u64,
}

impl Drop for SeedOnFailure {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the same again: scripts/chaos {} --seed {}", self.suite, self.seed);
        }
    }
}
