//! Label probabilities at a marker in generated text.

use probity_lm::{Ask, GenerateRequest, Label, LabelSet, Prompt, ScoreRequest};

use crate::engine::generate::{Decode, GeneratedText, TokenPrompt};

/// The query for the labels after the last occurrence of the marker. `None` if no verdict was requested or the text has
/// no marker.
///
/// Conditioned on the prompt and the generated tokens up to the end of the marker. If the marker ends inside a token,
/// that token's text up to there is scored with the labels, as at any other boundary.
pub(crate) fn verdict_request(
    request: &GenerateRequest,
    prompt: &TokenPrompt,
    generated: &GeneratedText,
    decode: Decode<'_>,
) -> Option<ScoreRequest> {
    let (marker, labels) = request.verdict.as_ref()?;
    let end = generated.text.rfind(marker.as_str())? + marker.len();
    // A prefix of a text may be undecodable although the whole is valid; then the marker does not end there.
    let text_before = |count: usize| decode(&generated.token_ids[..count]).ok();
    let whole = &generated.text[..end];
    // The most tokens whose text ends at or before the end of the marker. Searched downwards: if a token ends inside a
    // character, the decoded text ends in a replacement character and is no prefix of the text.
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
