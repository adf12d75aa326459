//! Label probabilities at a named point of generated text.

use probity_lm::{Ask, GenerateRequest, Label, LabelSet, Prompt, ScoreRequest};

use crate::engine::generate::{Decode, GeneratedText, TokenPrompt};

/// The question that a generated text leaves open: its labels right behind the last occurrence of the marker. `None`
/// where none was asked for, or the text has no marker.
///
/// Conditioned on the prompt and the generated tokens up to the marker's end. Where the marker ends inside a token,
/// that token's text up to there is charged to the labels, by the same rule as at any other boundary.
pub(crate) fn verdict_request(
    request: &GenerateRequest,
    prompt: &TokenPrompt,
    generated: &GeneratedText,
    decode: Decode<'_>,
) -> Option<ScoreRequest> {
    let (marker, labels) = request.verdict.as_ref()?;
    let end = generated.text.rfind(marker.as_str())? + marker.len();
    // A part of a text may have none though the whole does: then it is not where the marker ends.
    let text_before = |count: usize| decode(&generated.token_ids[..count]).ok();
    let whole = &generated.text[..end];
    // The most tokens whose text lies before the end of the marker.
    // Downwards: where a token ends inside a character, the text so far ends in a replacement and begins no text at
    // all.
    let (count, before) = (0..=generated.token_ids.len())
        .rev()
        .find_map(|count| Some((count, text_before(count).filter(|text| whole.starts_with(text.as_str()))?)))?;
    let rest = &whole[before.len()..];
    let charged = |label: &Label| Label {
        name: label.name.clone(),
        variants: label.variants.iter().map(|variant| format!("{rest}{variant}")).collect(),
    };
    let set = LabelSet::new(labels.labels().iter().map(charged).collect()).ok()?.with_termination(labels.termination());
    let (source, before) = prompt.tokens.split_at(prompt.source);
    let answer = [before, &generated.token_ids[..count]].concat();
    let prompt =
        if source.is_empty() { Prompt::Tokens(answer) } else { Prompt::Pair { source: source.to_vec(), answer } };
    Some(ScoreRequest { id: request.id.clone(), prompt, ask: Ask::Labels(set) })
}
