//! Access tokens.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;

/// A secret that clients send as `Authorization: Bearer`. Only its hash is stored, so it cannot be printed.
#[derive(Clone)]
pub struct AccessToken([u8; 32]);

/// An invalid token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("a token must be one line of at least eight visible ASCII characters")]
#[diagnostic(help("create one with: head -c 24 /dev/urandom | base64"))]
pub struct TokenError;

impl AccessToken {
    /// Creates a token from the contents of a file or a variable, without surrounding white space.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.len() < 8 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError);
        }
        Ok(Self(Sha256::digest(text).into()))
    }

    /// Draws a random token; returns it with its text.
    pub(crate) fn draw() -> Result<(Self, String), getrandom::Error> {
        let mut drawn = [0; 16];
        getrandom::fill(&mut drawn)?;
        let text = format!("{:032x}", u128::from_le_bytes(drawn));
        Ok((Self(Sha256::digest(&text).into()), text))
    }

    /// Compares with a token in constant time.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        self.0.ct_eq(&shown).into()
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_compared_whole_and_never_printed() {
        let token = AccessToken::new(" secret-token\n").expect("one line");
        assert!(token.is(b"secret-token") && !token.is(b"secret-toke") && !token.is(b""));
        assert_eq!(format!("{token:?}"), "AccessToken(…)");
        let (drawn, text) = AccessToken::draw().expect("random numbers");
        assert!(drawn.is(text.as_bytes()) && text.len() == 32 && !token.is(text.as_bytes()));
        assert!(["", "short", "two words here", "größer-als"].iter().all(|text| AccessToken::new(text).is_err()));
    }
}
