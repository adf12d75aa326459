//! The options of `attack`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::Defence;

/// Options of the attack.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct AttackParams {
    /// Method to attack, with its options; repeatable
    ///
    /// Options follow the name: `compare`, `judge:mode=pointwise,verdict=label`, `g-eval:template=FILE`. Any method
    /// that shows candidates to a model and scores them can be attacked.
    // The key `method` of a recipe names the method to run.
    #[schemars(length(min = 1), inner(length(min = 1)), extend("form" = "NAME[:KEY=VALUE,…]", "long" = "method", "signed" = "methods"))]
    pub target: Vec<String>,
    /// Attribute that the methods judge
    ///
    /// For methods that need an attribute.
    #[schemars(length(min = 1), extend("form" = "NAME"))]
    #[default("quality".to_owned())]
    pub attribute: String,
    /// Word for a candidate in prompts and attacks
    #[schemars(length(min = 1), extend("form" = "WORD"))]
    #[default("response".to_owned())]
    pub noun: String,
    /// Attacks or families to use, separated by commas
    ///
    /// Omitted: all. docs/methods/attack.md lists them.
    #[schemars(extend("form" = "NAME,…", "signed" = "attacks"))]
    pub attack: Vec<String>,
    /// Your own attacks, in addition
    ///
    /// JSON lines with an object `{"name": …, "text": …, "place": …}` each.
    #[schemars(extend("form" = "FILE", "signed" = "attacks"))]
    pub texts: Option<PathBuf>,
    /// Number of samples to attack
    ///
    /// They are drawn by --seed. All are attacked if there are fewer.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(50)]
    pub items: u32,
    /// Defence to measure against none; repeatable
    ///
    /// One of sandwich, nonce:KEY, paraphrase and perplexity:NATS.
    #[schemars(extend("form" = "DEFENCE", "signed" = "defences"))]
    pub defence: Vec<Defence>,
    /// Random seed
    ///
    /// It selects the samples, and the candidate to attack if people have not judged which is better.
    #[default(0)]
    pub seed: u64,
}
