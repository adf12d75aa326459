//! All methods, one line each.

use crate::comparative::Comparative;
use crate::g_eval::GEval;
use crate::method::{DynMethod, entry};
use crate::para_pluie::ParaPluie;

const METHODS: &[&dyn DynMethod] = &[entry::<Comparative>(), entry::<GEval>(), entry::<ParaPluie>()];

/// All methods, in the order in which they are listed.
pub fn methods() -> &'static [&'static dyn DynMethod] {
    METHODS
}

/// The method of that name.
pub fn method(name: &str) -> Option<&'static dyn DynMethod> {
    METHODS.iter().copied().find(|method| method.name() == name)
}
