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
    /// The method that is attacked, with options of its own: `compare`, `judge:mode=pointwise,verdict=label`,
    /// `g-eval:template=FILE`. Once for each; whatever shows a model candidates and scores them can be attacked.
    // A recipe's key `method` says what is run.
    #[schemars(length(min = 1), inner(length(min = 1)), extend("form" = "NAME[:KEY=VALUE,…]", "long" = "method", "signed" = "methods"))]
    pub target: Vec<String>,
    /// What the methods judge by, where they are asked for it.
    #[schemars(length(min = 1), extend("form" = "NAME"))]
    #[default("quality".to_owned())]
    pub attribute: String,
    /// What a candidate is called in prompts and in attacks.
    #[schemars(length(min = 1), extend("form" = "WORD"))]
    #[default("response".to_owned())]
    pub noun: String,
    /// Only these attacks or families of them, separated by commas: docs/methods/attack.md lists them. Left out: all.
    #[schemars(extend("form" = "NAME,…", "signed" = "attacks"))]
    pub attack: Vec<String>,
    /// Attacks of your own besides: a JSON object `{"name": …, "text": …, "place": …}` in each line.
    #[schemars(extend("form" = "FILE", "signed" = "attacks"))]
    pub texts: Option<PathBuf>,
    /// How many samples are attacked: drawn by the seed, all where there are fewer.
    #[schemars(range(min = 1), extend("form" = "N"))]
    #[default(50)]
    pub items: u32,
    /// A defence to measure beside none, once for each: sandwich, nonce:KEY, paraphrase, perplexity:NATS.
    #[schemars(extend("form" = "DEFENCE", "signed" = "defences"))]
    pub defence: Vec<Defence>,
    /// Seed of which samples are attacked, and of which candidate where nobody said which is better.
    #[default(0)]
    pub seed: u64,
}
