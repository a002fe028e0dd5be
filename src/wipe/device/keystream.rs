//! Random bytes as fast as a disk takes them.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};

/// AES in counter mode, under a key from the kernel that nobody ever sees.
///
/// The kernel's own generator makes a few hundred megabytes a second; a processor with AES
/// instructions makes gigabytes. The TLS library, which is here anyway, has this mode as a part of
/// GCM; the tag that comes with it is thrown away.
pub struct Keystream {
    key: LessSafeKey,
    blocks: u64,
}

impl Keystream {
    /// Takes a new key, so that no two of them are alike.
    ///
    /// # Errors
    /// When the kernel has no random bytes for us.
    pub fn new() -> Result<Self, Unspecified> {
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key)?;
        Ok(Self {
            key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key)?),
            blocks: 0,
        })
    }

    /// Makes random bytes of whatever is in `block`, zeros or the bytes of the time before.
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
    fn no_block_comes_twice() {
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
