//! All methods that judge, one line each; the studies are in a crate of their own.

use crate::checklist::Checklist;
use crate::comparative::Comparative;
use crate::g_eval::GEval;
use crate::gpt_score::GptScore;
use crate::judge::Judge;
use crate::method::{DynMethod, entry};
use crate::para_pluie::ParaPluie;
use crate::prompt_scoring::PromptScoring;
use crate::reward::Reward;

const METHODS: &[&dyn DynMethod] = &[
    entry::<Comparative>(),
    entry::<GEval>(),
    entry::<PromptScoring>(),
    entry::<Checklist>(),
    entry::<GptScore>(),
    entry::<ParaPluie>(),
    entry::<Judge>(),
    entry::<Reward>(),
];

/// The methods that judge, in the order in which they are listed.
pub fn methods() -> &'static [&'static dyn DynMethod] {
    METHODS
}

#[cfg(test)]
pub(crate) fn method(name: &str) -> Option<&'static dyn DynMethod> {
    METHODS.iter().copied().find(|method| method.name() == name)
}
