//! The judging methods, one line each; studies are in a separate crate.

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

/// All judging methods in display order.
pub fn methods() -> &'static [&'static dyn DynMethod] {
    METHODS
}

#[cfg(test)]
pub(crate) fn method(name: &str) -> Option<&'static dyn DynMethod> {
    METHODS.iter().copied().find(|method| method.name() == name)
}
