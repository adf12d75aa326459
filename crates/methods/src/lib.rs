//! Evaluation methods on the language-model contract
