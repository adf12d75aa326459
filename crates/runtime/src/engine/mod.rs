//! Token queries on packed models: prefix tree, walk, scores and generation.

pub(crate) mod behind;
mod draft;
pub(crate) mod generate;
pub(crate) mod kept;
pub(crate) mod rows;
mod sample;
pub(crate) mod scheduler;
mod states;
pub(crate) mod token_scores;
pub(crate) mod tree;
pub(crate) mod walk;

#[cfg(test)]
mod adapter_tests;
#[cfg(test)]
mod bridge_tests;
#[cfg(test)]
mod counting_tests;
#[cfg(test)]
mod device_checks;
#[cfg(test)]
mod device_tests;
#[cfg(test)]
mod gemma3_tests;
#[cfg(test)]
mod generate_tests;
#[cfg(test)]
mod golden_tests;
