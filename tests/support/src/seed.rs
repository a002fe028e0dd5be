//! Random numbers that a test can draw again.

/// The seed of a test that draws random numbers: the environment variable `TEST_SEED`, or 1. It is printed, which the
/// test's runner shows when the test fails.
///
/// # Panics
/// When the variable is no number.
#[must_use]
pub fn seed() -> u64 {
    let seed = std::env::var("TEST_SEED")
        .map_or(1, |seed| seed.parse().unwrap_or_else(|error| panic!("TEST_SEED={seed}: {error}")));
    eprintln!("TEST_SEED={seed} draws the same random numbers again");
    seed
}

/// xorshift64*: good enough to spread crashes.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of [`seed`].
    #[must_use]
    pub fn seeded() -> Self {
        // Spreads the bits of small seeds. It must not be zero.
        Self(seed().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}
