//! Generates random bytes faster than a disk writes them.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};

/// AES in counter mode, with a random key from the kernel that is not kept.
///
/// The kernel's generator yields a few hundred megabytes a second; AES instructions yield gigabytes. `ring`,
/// which TLS requires anyway, offers this mode as a part of GCM; the tag is discarded.
pub struct Keystream(LessSafeKey);

impl Keystream {
    /// Creates a key, so that no two streams are equal.
    ///
    /// # Errors
    /// When the kernel returns no random bytes.
    pub fn new() -> Result<Self, Unspecified> {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key)?;
        let key = UnboundKey::new(&AES_256_GCM, &key)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Encrypts `block` in place: its contents, zeros or earlier output, do not matter. No two blocks of a stream have
    /// the same `number`.
    ///
    /// # Errors
    /// When the block is longer than the cipher's 64 GiB.
    pub fn scramble(&self, block: &mut [u8], number: u64) -> Result<(), Unspecified> {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::empty(), block);
        tag.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_block_repeats() {
        let mut seen = HashSet::new();
        for _ in 0..2 {
            let keystream = Keystream::new().unwrap();
            for number in 0..8 {
                let mut block = [0; 4096];
                keystream.scramble(&mut block, number).unwrap();
                for sixteen in block.chunks(16) {
                    assert!(seen.insert(sixteen.to_vec()));
                }
            }
        }
    }
}
