//! Selection of the pairs to compare (Liusie et al. 2024, §3.4).

use std::fmt;
use std::str::FromStr;

use probity_options::written_as_text;
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use sha2::{Digest, Sha256};

/// The comparisons of one context. A comparison is an *ordered* pair (first shown, second shown); R counts comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairSelection {
    /// All N(N−1).
    Full,
    /// R of all, drawn without replacement.
    Random(usize),
    /// R unordered pairs, each in one random order: if (i, j) is chosen, (j, i) is not.
    NoRepeat(usize),
    /// R/2 unordered pairs, each in both orders. R is even.
    Symmetric(usize),
}

impl PairSelection {
    /// The maximum number of comparisons for `n` candidates.
    pub fn max(self, n: usize) -> usize {
        let all = n * n.saturating_sub(1);
        if matches!(self, Self::NoRepeat(_)) { all / 2 } else { all }
    }

    /// The requested comparisons per context; `None` for all.
    pub fn count(self) -> Option<usize> {
        match self {
            Self::Full => None,
            Self::Random(r) | Self::NoRepeat(r) | Self::Symmetric(r) => Some(r),
        }
    }

    /// The same scheme with another R; [`PairSelection::Full`] is unchanged.
    #[must_use]
    pub fn with_count(self, r: usize) -> Self {
        match self {
            Self::Full => Self::Full,
            Self::Random(_) => Self::Random(r),
            Self::NoRepeat(_) => Self::NoRepeat(r),
            Self::Symmetric(_) => Self::Symmetric(r),
        }
    }

    /// The sorted ordered pairs of positions among `n` candidates. R above [`PairSelection::max`] selects all.
    pub fn select(self, n: usize, rng: &mut impl Rng) -> Vec<(usize, usize)> {
        let ordered = || (0..n).flat_map(|i| (0..n).filter(move |j| *j != i).map(move |j| (i, j))).collect::<Vec<_>>();
        let unordered = || (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).collect::<Vec<_>>();
        let mut chosen = match self {
            Self::Full => ordered(),
            Self::Random(r) => draw(ordered(), r, rng),
            Self::NoRepeat(r) => draw(unordered(), r, rng)
                .into_iter()
                .map(|(i, j)| if rng.random::<bool>() { (i, j) } else { (j, i) })
                .collect(),
            Self::Symmetric(r) => {
                draw(unordered(), r / 2, rng).into_iter().flat_map(|(i, j)| [(i, j), (j, i)]).collect()
            }
        };
        // Sorted, so that prompts with a shared prefix are adjacent, and pairs can be looked up.
        chosen.sort_unstable();
        chosen
    }
}

fn draw(mut pairs: Vec<(usize, usize)>, count: usize, rng: &mut impl Rng) -> Vec<(usize, usize)> {
    let count = count.min(pairs.len());
    pairs.partial_shuffle(rng, count).0.to_vec()
}

impl fmt::Display for PairSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Random(r) => write!(f, "random:{r}"),
            Self::NoRepeat(r) => write!(f, "no-repeat:{r}"),
            Self::Symmetric(r) => write!(f, "symmetric:{r}"),
        }
    }
}

written_as_text!(PairSelection);

/// A text that is not a [`PairSelection`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum PairsError {
    /// It has no number and is not `full`.
    #[error("expected {FORMS}")]
    Form,
    /// The number does not parse.
    #[error("`{0}` is not a number of comparisons")]
    Number(String),
    /// The number is 0.
    #[error("at least one comparison is needed")]
    None,
    /// Symmetric comparisons with an odd number.
    #[error("symmetric comparisons need an even number: {0} is odd, try symmetric:{next}", next = .0 + 1)]
    Odd(usize),
    /// An unknown scheme.
    #[error("unknown scheme `{0}`, expected {FORMS}")]
    Scheme(String),
}

const FORMS: &str = "full, random:R, no-repeat:R or symmetric:R, where R is the number of comparisons per context";

impl FromStr for PairSelection {
    type Err = PairsError;

    fn from_str(text: &str) -> Result<Self, PairsError> {
        if text == "full" {
            return Ok(Self::Full);
        }
        let (scheme, count) = text.split_once(':').ok_or(PairsError::Form)?;
        let r: usize = count.parse().map_err(|_| PairsError::Number(count.to_owned()))?;
        match scheme {
            _ if r == 0 => Err(PairsError::None),
            "random" => Ok(Self::Random(r)),
            "no-repeat" => Ok(Self::NoRepeat(r)),
            "symmetric" if r % 2 == 1 => Err(PairsError::Odd(r)),
            "symmetric" => Ok(Self::Symmetric(r)),
            _ => Err(PairsError::Scheme(scheme.to_owned())),
        }
    }
}

/// A random generator for one purpose. The same seed and parts give the same numbers, independent of the rest of the
/// run.
pub fn rng_for(seed: u64, parts: &[&str]) -> ChaCha8Rng {
    ChaCha8Rng::from_seed(digest(seed, parts))
}

/// A seed for one purpose; see [`rng_for`].
pub fn seed_for(seed: u64, parts: &[&str]) -> u64 {
    let digest = digest(seed, parts);
    u64::from_le_bytes(digest[..8].try_into().expect("a digest has 32 bytes"))
}

fn digest(seed: u64, parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    for part in parts {
        // Lengths keep different splits of the same text apart.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn unordered(pairs: &[(usize, usize)]) -> BTreeSet<(usize, usize)> {
        pairs.iter().map(|&(i, j)| (i.min(j), i.max(j))).collect()
    }

    fn select(pairs: &str, n: usize, seed: u64) -> Vec<(usize, usize)> {
        pairs.parse::<PairSelection>().expect("valid").select(n, &mut rng_for(seed, &["item"]))
    }

    #[test]
    fn each_scheme_keeps_its_promise() {
        for n in 2..7 {
            assert_eq!(select("full", n, 0).len(), n * (n - 1));
            for seed in 0..20 {
                let r = n * (n - 1) / 2;
                let random = select(&format!("random:{r}"), n, seed);
                assert!(random.len() == r && random.windows(2).all(|w| w[0] < w[1]));
                let once = select(&format!("no-repeat:{r}"), n, seed);
                assert!(once.len() == r && unordered(&once).len() == r);
                let both = select("symmetric:2", n, seed);
                assert!(both.len() == 2 && both[0] == (both[1].1, both[1].0));
                assert!([random, once, both].iter().flatten().all(|(i, j)| i != j && *i < n && *j < n));
            }
        }
    }

    #[test]
    fn the_same_seed_chooses_the_same_and_another_seed_others() {
        for scheme in ["random:10", "no-repeat:10", "symmetric:10"] {
            assert_eq!(select(scheme, 8, 1), select(scheme, 8, 1));
            assert_ne!(select(scheme, 8, 1), select(scheme, 8, 2));
        }
    }

    #[test]
    fn both_orders_are_equally_likely_without_repeats() {
        let first = (0..400).filter(|seed| select("no-repeat:1", 2, *seed) == [(0, 1)]).count();
        assert!((160..=240).contains(&first), "{first} of 400");
    }

    #[test]
    fn malformed_schemes_say_what_is_expected() {
        for (text, part) in [
            ("all", "random:R"),
            ("random:x", "`x`"),
            ("random:0", "at least one"),
            ("symmetric:3", "symmetric:4"),
            ("odd:3", "`odd`"),
        ] {
            assert!(text.parse::<PairSelection>().expect_err("malformed").to_string().contains(part), "{text}");
        }
    }

    #[test]
    fn forms_are_read_back() {
        for text in ["full", "random:3", "no-repeat:4", "symmetric:6"] {
            assert_eq!(text.parse::<PairSelection>().expect("valid").to_string(), text);
        }
    }
}
