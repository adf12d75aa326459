//! Shards of the samples.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use probity_options::written_as_text;

/// One shard of the samples, as `I/N`: every N-th sample from the I-th on. Shards therefore have similar sizes, and
/// similar costs even if the data are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    pub number: usize,
    /// The number of shards.
    pub of: usize,
}

/// Larger numbers are probably mistakes.
const MOST: usize = 65_536;

/// Not of the form `I/N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("expected I/N with I from 1 to N, and N up to {MOST}, such as 3/8")]
pub struct ShardError;

impl Shard {
    /// The shard's elements of a list.
    pub fn part<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.number - 1).step_by(self.of).collect()
    }

    /// The shard's folder, derived from that of the whole run: `runs/pairs.3-of-8`.
    pub fn folder(self, whole: &Path) -> PathBuf {
        let mut name = whole.as_os_str().to_owned();
        name.push(format!(".{}-of-{}", self.number, self.of));
        name.into()
    }

    /// The number of elements in this shard of `all`.
    pub fn len(self, all: usize) -> usize {
        all.saturating_sub(self.number - 1).div_ceil(self.of)
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let (number, of) = text.split_once('/').ok_or(ShardError)?;
        let [number, of] = [number, of].map(|part| part.parse().map_err(|_| ShardError));
        let shard = Self { number: number?, of: of? };
        let is_part = (1..=shard.of).contains(&shard.number) && shard.of <= MOST;
        if is_part { Ok(shard) } else { Err(ShardError) }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

written_as_text!(Shard);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_together_are_the_whole_and_each_sample_is_in_one() {
        for (all, of) in [(0, 1), (1, 3), (7, 3), (9, 3), (100, 8)] {
            let parts: Vec<Vec<usize>> = (1..=of).map(|number| Shard { number, of }.part((0..all).collect())).collect();
            let mut together: Vec<usize> = parts.iter().flatten().copied().collect();
            together.sort_unstable();
            assert_eq!(together, (0..all).collect::<Vec<_>>());
            for (number, part) in (1..).zip(&parts) {
                assert_eq!(Shard { number, of }.len(all), part.len(), "{number}/{of} of {all}");
            }
        }
    }

    #[test]
    fn what_names_no_part_is_refused() {
        assert_eq!("3/8".parse(), Ok(Shard { number: 3, of: 8 }));
        for wrong in ["", "3", "0/8", "9/8", "3/0", "-1/8", "a/b", "3/8/2", "1.5/2", "1/4294967297"] {
            assert_eq!(wrong.parse::<Shard>(), Err(ShardError), "{wrong}");
        }
    }
}
