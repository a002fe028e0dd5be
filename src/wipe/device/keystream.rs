//! Generates random bytes faster than a disk writes them.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};

/// AES in counter mode, with a random key from the kernel that is not kept.
///
/// The kernel's generator yields a few hundred megabytes a second; AES instructions yield gigabytes. `ring`,
/// which TLS requires anyway, offers this mode as a part of GCM; the tag is discarded.
pub struct Keystream {
    key: LessSafeKey,
    blocks: u64,
}

impl Keystream {
    /// Creates a key, so that no two streams are equal.
    ///
    /// # Errors
    /// When the kernel returns no random bytes.
    pub fn new() -> Result<Self, Unspecified> {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key)?;
        Ok(Self {
            key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key)?),
            blocks: 0,
        })
    }

    /// Encrypts `block` in place: its contents, zeros or earlier output, do not matter.
    ///
    /// # Errors
    /// When the block is longer than the cipher's 64 GiB.
    pub fn scramble(&mut self, block: &mut [u8]) -> Result<(), Unspecified> {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&self.blocks.to_le_bytes());
        self.blocks += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_separate_tag(nonce, Aad::empty(), block)
            .map(drop)
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
            let mut keystream = Keystream::new().unwrap();
            for _ in 0..8 {
                let mut block = [0; 4096];
                keystream.scramble(&mut block).unwrap();
                for sixteen in block.chunks(16) {
                    assert!(seen.insert(sixteen.to_vec()));
                }
            }
        }
    }
}
