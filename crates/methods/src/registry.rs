//! The judging methods, one line each; studies are in a separate crate.

use crate::method::{DynMethod, entry};

const METHODS: &[&dyn DynMethod] = &[
    entry::<crate::comparative::Comparative>(),
    entry::<crate::g_eval::GEval>(),
    entry::<crate::prompt_scoring::PromptScoring>(),
    entry::<crate::checklist::Checklist>(),
    entry::<crate::gpt_score::GptScore>(),
    entry::<crate::para_pluie::ParaPluie>(),
    entry::<crate::judge::Judge>(),
    entry::<crate::reward::Reward>(),
];

/// All judging methods in display order.
pub fn methods() -> &'static [&'static dyn DynMethod] {
    METHODS
}

#[cfg(test)]
pub(crate) fn method(name: &str) -> Option<&'static dyn DynMethod> {
    METHODS.iter().copied().find(|method| method.name() == name)
}
