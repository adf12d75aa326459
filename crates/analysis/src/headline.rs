//! One-line summary figure of a run.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::figures::number;

/// Figure that summarises a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Headline {
    /// Name: `Spearman`, the mean over contexts; `accuracy` of preferences; `mean` of scores without gold.
    pub figure: Cow<'static, str>,
    /// Attribute; absent if the method has none.
    pub attribute: Option<String>,
    /// Value; null if undefined.
    pub value: Option<f64>,
}

impl Headline {
    /// Creates a headline.
    pub fn new(figure: impl Into<Cow<'static, str>>, attribute: Option<&str>, value: Option<f64>) -> Self {
        Self { figure: figure.into(), attribute: attribute.map(str::to_owned), value }
    }
}

/// `Spearman 0.412 (coherence)`, with a dash for an undefined value.
impl fmt::Display for Headline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.figure, number(self.value))?;
        self.attribute.as_ref().map_or(Ok(()), |attribute| write!(f, " ({attribute})"))
    }
}
