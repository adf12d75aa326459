//! The figure of a run where there is room for one line.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::figures::number;

/// The one figure that summarises a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Headline {
    /// What it is: `Spearman`, the mean over contexts; `accuracy`, of preferences; `mean`, of scores where there is no
    /// gold.
    pub figure: Cow<'static, str>,
    /// What was judged; absent where the method asks for no attribute.
    pub attribute: Option<String>,
    /// The figure; null where it is not defined.
    pub value: Option<f64>,
}

impl Headline {
    /// A figure with what it is.
    pub fn new(figure: impl Into<Cow<'static, str>>, attribute: Option<&str>, value: Option<f64>) -> Self {
        Self { figure: figure.into(), attribute: attribute.map(str::to_owned), value }
    }
}

/// `Spearman 0.412 (coherence)`, with a dash for what is not defined.
impl fmt::Display for Headline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.figure, number(self.value))?;
        self.attribute.as_ref().map_or(Ok(()), |attribute| write!(f, " ({attribute})"))
    }
}
