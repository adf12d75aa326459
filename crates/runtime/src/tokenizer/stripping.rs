//! Added tokens that strip adjacent white space. GGUF files do not store this property, unlike `tokenizer.json`.

use super::added::AddedToken;
use crate::weights::StringTable;

/// A vocabulary whose tokens strip white space, recognised by tokens at certain ids.
struct Stripping {
    known_by: &'static [(u32, &'static str)],
    left: bool,
    right: bool,
    strips: fn(&AddedToken) -> bool,
}

/// From the models' own `tokenizer.json`.
const STRIPPING: [Stripping; 3] = [
    // Phi-3 and Phi-3.5, mini and medium.
    Stripping {
        known_by: &[(32000, "<|endoftext|>"), (32001, "<|assistant|>"), (32010, "<|user|>")],
        left: false,
        right: true,
        strips: |token| !matches!(token.content.as_str(), "<unk>" | "<s>" | "<|endoftext|>"),
    },
    // Phi-4.
    Stripping {
        known_by: &[(100_264, "<|im_start|>"), (100_265, "<|im_end|>"), (100_266, "<|im_sep|>")],
        left: true,
        right: true,
        strips: |token| token.special,
    },
    // Phi-4-mini.
    Stripping {
        known_by: &[(200_019, "<|assistant|>"), (200_020, "<|end|>"), (200_021, "<|user|>")],
        left: false,
        right: true,
        strips: |token| matches!(token.content.as_str(), "<|assistant|>" | "<|end|>" | "<|user|>" | "<|system|>"),
    },
];

/// Sets which tokens of a GGUF vocabulary strip white space.
pub(super) fn find_stripping(tokens: &StringTable, added: &mut [AddedToken]) {
    let is_known = |rule: &&Stripping| rule.known_by.iter().all(|(id, text)| tokens.get(*id as usize) == Some(*text));
    let Some(rule) = STRIPPING.iter().find(is_known) else { return };
    for token in added.iter_mut().filter(|token| (rule.strips)(token)) {
        (token.lstrip, token.rstrip) = (rule.left, rule.right);
    }
}
