//! Text generation: prefill over the prefix tree, then batched decoding with verification of draft tokens.

use std::borrow::{Borrow, Cow};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use candle_core::Tensor;
use probity_lm::{Constraint, Finish, Sampling, Usage};
use probity_models::{HeadRow, KvSpan, PackedDecoder, PackedSegment};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::behind::BehindText;
use super::draft::{Draft, DraftStatistics, LONGEST};
use super::rows::{LOGIT_ROWS, pick, with_values};
use super::sample::sample;
use super::scheduler::{ScheduleLimits, bytes_in_pieces};
use super::token_scores::ScheduleOptions;
use super::tree::{PrefixTree, in_groups};
use super::walk::{ComputedGroup, WalkError, walk};
use crate::Drafting;
use crate::constraint::{ConstrainedText, ConstraintError};

/// Spans of generated tokens below this length are short and get joined.
const JOIN: usize = 16;
const _: () = assert!(LONGEST < LOGIT_ROWS, "a text's rows are held together");

/// A tokenised prompt with generation options.
#[derive(Clone)]
pub(crate) struct TokenPrompt {
    pub(crate) tokens: Vec<u32>,
    /// Number of tokens that an encoder reads; 0 without an encoder.
    pub(crate) source: usize,
    pub(crate) max_tokens: usize,
    pub(crate) stop: Vec<String>,
    pub(crate) sampling: Sampling,
    pub(crate) constraint: Option<Constraint>,
}

/// A generated text. `finish` is absent if the logits were not finite, the constraint failed, or the tokens could not
/// be decoded.
pub(crate) struct GeneratedText {
    pub(crate) token_ids: Vec<u32>,
    pub(crate) text: String,
    pub(crate) finish: Option<Finish>,
    /// Why the constraint or the decoding failed.
    pub(crate) strayed: Option<Strayed>,
    /// Number of accepted draft tokens.
    pub(crate) accepted: usize,
    /// The token that ended the turn, if any. It is not part of the text.
    pub(crate) end: Option<u32>,
}

/// Why a text could not be continued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Strayed {
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// Its tokens could not be decoded.
    #[error("{why}")]
    NoText { why: String },
    /// The caller cancelled it.
    #[error("the text was given up")]
    GivenUp,
}

/// Decodes tokens to text.
pub(crate) type Decode<'a> = &'a dyn Fn(&[u32]) -> Result<String, Strayed>;

/// Tokenizer functions needed for generation.
pub(crate) struct GenerationVocabulary<'a> {
    pub(crate) decode: Decode<'a>,
    pub(crate) ends: &'a [u32],
    /// Starts a text under a constraint.
    pub(crate) constrain: &'a dyn Fn(&Constraint) -> Result<ConstrainedText, ConstraintError>,
}

/// A text being generated.
struct OpenText {
    prompt: Arc<TokenPrompt>,
    index: usize,
    random: Option<ChaCha8Rng>,
    constrained: Option<ConstrainedText>,
    /// Why the constraint or the decoding failed.
    strayed: Option<Strayed>,
    path: Vec<Arc<KvSpan>>,
    /// Number of spans of the path that belong to the prompt.
    prompt_spans: usize,
    /// Tokens of the prompt and the generated text.
    tokens: Vec<u32>,
    accepted: usize,
}

/// Model output for the next token after a row.
enum NextToken<'r> {
    /// For greedy texts: the output head's row, and the position of its hidden state.
    Head { head: &'r HeadRow, hidden: &'r Tensor, at: usize, model: &'r dyn PackedDecoder },
    /// Logits over the full vocabulary.
    Logits(&'r [f32]),
}

impl OpenText {
    fn new(
        index: usize,
        prompt: Arc<TokenPrompt>,
        path: Vec<Arc<KvSpan>>,
        vocabulary: &GenerationVocabulary<'_>,
    ) -> Self {
        // One generator per text: sampling does not depend on other texts, and ChaCha is the same on every machine.
        let random = match prompt.sampling {
            Sampling::Greedy => None,
            Sampling::Random { seed, .. } => Some(ChaCha8Rng::seed_from_u64(seed)),
        };
        // The constraint was valid when the request was accepted. A failure now concerns this text only; the others
        // continue.
        let constrained = prompt.constraint.as_ref().map(vocabulary.constrain).transpose();
        let (constrained, strayed) =
            constrained.map_or_else(|why| (None, Some(why.into())), |constrained| (constrained, None));
        let (prompt_spans, tokens) = (path.len(), prompt.tokens.clone());
        Self { prompt, index, random, constrained, strayed, prompt_spans, path, tokens, accepted: 0 }
    }

    fn generated(&self) -> &[u32] {
        &self.tokens[self.prompt.tokens.len()..]
    }

    /// Chooses the next token. `None` if the logits are not finite or the text failed.
    fn choose(&mut self, row: &NextToken<'_>) -> candle_core::Result<Option<u32>> {
        if self.strayed.is_some() {
            return Ok(None);
        }
        let chosen = match row {
            NextToken::Logits(logits) => self.draw(logits),
            NextToken::Head { head, .. } if !head.normaliser.is_finite() => Ok(None),
            NextToken::Head { head, hidden, at, model } => {
                match self.constrained.as_mut().map(|constrained| constrained.instead_of(head.greedy)) {
                    None | Some(Ok(None)) => Ok(Some(head.greedy)),
                    Some(Ok(Some(mask))) => Ok(model.greedy_among(&hidden.narrow(0, *at, 1)?, head, mask.bits())?),
                    Some(Err(why)) => Err(why),
                }
            }
        };
        Ok(chosen.unwrap_or_else(|why| {
            self.strayed = Some(why.into());
            None
        }))
    }

    /// Samples a token.
    fn draw(&mut self, logits: &[f32]) -> Result<Option<u32>, ConstraintError> {
        let (Sampling::Random { temperature, limits, .. }, Some(random)) = (self.prompt.sampling, &mut self.random)
        else {
            unreachable!("only random texts need whole rows of logits")
        };
        if logits.iter().any(|logit| logit.is_nan() || *logit == f32::INFINITY) {
            return Ok(None);
        }
        let logits = match &mut self.constrained {
            Some(constrained) => Cow::Owned(constrained.allowed()?.masked(logits)),
            None => Cow::Borrowed(logits),
        };
        let possible = logits.iter().any(|logit| *logit > f32::NEG_INFINITY);
        // One random number per generated token. Drafts do not advance the generator, so texts are the same with and
        // without them.
        Ok(possible.then(|| sample(&logits, temperature, limits, random.random())))
    }

    /// Advances through the rows of a pass, for the last token and the draft tokens after it, while the draft is right.
    /// Returns the result if the text ends.
    fn advance<'r>(
        &mut self,
        guessed: &[u32],
        row: impl Fn(usize) -> NextToken<'r>,
        vocabulary: &GenerationVocabulary<'_>,
    ) -> candle_core::Result<Option<GeneratedText>> {
        for at in 0..=guessed.len() {
            let token = self.choose(&row(at))?;
            let right = token.is_some() && token == guessed.get(at).copied();
            let before = self.tokens.len();
            let ended = self.push(token, vocabulary);
            // An end-of-turn token is not part of the text, even if it was drafted. A token that completes a constraint
            // is.
            self.accepted += usize::from(right && self.tokens.len() > before);
            if ended.is_some() || !right {
                return Ok(ended.map(|generated| GeneratedText { accepted: self.accepted, ..generated }));
            }
        }
        Ok(None)
    }

    /// Appends the next token, if any. Returns the result if the text ends.
    fn push(&mut self, token: Option<u32>, vocabulary: &GenerationVocabulary<'_>) -> Option<GeneratedText> {
        let Some(token) = token else { return Some(self.end(vocabulary, None)) };
        if vocabulary.ends.contains(&token) {
            return Some(GeneratedText { end: Some(token), ..self.end(vocabulary, Some(Finish::EndOfTurn)) });
        }
        self.tokens.push(token);
        if let Some(Err(why)) = self.constrained.as_mut().map(|constrained| constrained.advance(token)) {
            self.strayed = Some(why.into());
            return Some(self.end(vocabulary, None));
        }
        // Checked before the end of the constraint and the token limit: the same token may complete a stop sequence.
        match self.text_before_stop(vocabulary) {
            Ok(None) => {}
            Ok(Some(text)) => return Some(GeneratedText { text, ..self.end(vocabulary, Some(Finish::Stop)) }),
            Err(why) => {
                self.strayed = Some(why);
                return Some(self.end(vocabulary, None));
            }
        }
        if self.constrained.as_ref().is_some_and(ConstrainedText::is_finished) {
            return Some(self.end(vocabulary, Some(Finish::EndOfTurn)));
        }
        (self.generated().len() >= self.prompt.max_tokens).then(|| self.end(vocabulary, Some(Finish::Length)))
    }

    /// The text before the first stop sequence, if there is one.
    fn text_before_stop(&self, vocabulary: &GenerationVocabulary<'_>) -> Result<Option<String>, Strayed> {
        let stops = &self.prompt.stop;
        // Without stop sequences, tokens are not decoded one by one.
        let Some(longest) = stops.iter().map(String::len).max() else { return Ok(None) };
        let recent = self.recent_text(longest, vocabulary)?;
        if !stops.iter().any(|stop| recent.contains(stop)) {
            return Ok(None);
        }
        let mut text = (vocabulary.decode)(self.generated())?;
        let Some(at) = stops.iter().filter_map(|stop| text.find(stop)).min() else { return Ok(None) };
        text.truncate(at);
        Ok(Some(text))
    }

    /// The last token's text with enough preceding text to contain a stop sequence of `longest` bytes.
    fn recent_text(&self, longest: usize, vocabulary: &GenerationVocabulary<'_>) -> Result<String, Strayed> {
        let Some((_, before)) = self.generated().split_last() else { return Ok(String::new()) };
        // Decoding can drop a leading space, and a cut character at either end can become up to three replacement
        // characters of three bytes.
        let reach = longest + 24;
        let mut count = reach;
        loop {
            let from = before.len().saturating_sub(count);
            // A token has at least one byte unless it is special, and any number of special tokens can occur.
            if from == 0 || (vocabulary.decode)(&before[from..])?.len() >= reach {
                return (vocabulary.decode)(&self.generated()[from..]);
            }
            count *= 2;
        }
    }

    /// The result of a cancelled text.
    fn give_up(&mut self, vocabulary: &GenerationVocabulary<'_>) -> GeneratedText {
        self.strayed = Some(Strayed::GivenUp);
        self.end(vocabulary, None)
    }

    fn end(&self, vocabulary: &GenerationVocabulary<'_>, finish: Option<Finish>) -> GeneratedText {
        let token_ids = self.generated().to_vec();
        let (text, finish, strayed) = match (vocabulary.decode)(&token_ids) {
            Ok(text) => (text, finish, self.strayed.clone()),
            // An empty text would look like an answer.
            Err(why) => (String::new(), None, Some(why)),
        };
        GeneratedText { text, token_ids, finish, strayed, accepted: self.accepted, end: None }
    }

    /// Keeps the accepted part of a new span. Joins it with preceding short spans that are less than twice as long as
    /// what follows them, which bounds the number of short spans to four and the number of copies per token.
    fn keep(&mut self, model: &dyn PackedDecoder, span: Arc<KvSpan>) -> candle_core::Result<()> {
        let held: usize = self.path.iter().map(|span| span.len()).sum();
        // The last token was only chosen; it is computed in the next pass.
        let mut len = self.tokens.len() - 1 - held;
        let mut first = self.path.len();
        while let Some(before) =
            self.path[self.prompt_spans..first].last().filter(|before| before.len() < JOIN.min(2 * len))
        {
            first -= 1;
            len += before.len();
        }
        // Joined spans become part of a span with states of its own; others keep theirs only while they are last.
        if let Some(last) = self.path[self.prompt_spans..first].last_mut() {
            *last = model.without_states(last);
        }
        let mut spans = self.path.split_off(first);
        spans.push(span);
        self.path.push(if spans.len() > 1 || len < spans[0].len() {
            model.join(&spans, len)?
        } else {
            spans.remove(0)
        });
        Ok(())
    }
}

/// Receives progress and results, and can add texts.
pub(crate) trait TextVisitor<E> {
    /// Receives the result of the prompt with this index. Tokens after the text can be scored through `behind`.
    fn done(&mut self, index: usize, text: GeneratedText, behind: &mut BehindText<'_>) -> Result<(), WalkError<E>>;

    /// Receives a text's tokens so far. Returns whether to continue.
    fn grown(&mut self, _index: usize, _ids: &[u32]) -> bool {
        true
    }

    /// Returns up to `room` prompts that have arrived; called before each pass.
    fn arrived(&mut self, _room: usize) -> Result<Vec<Arc<TokenPrompt>>, WalkError<E>> {
        Ok(Vec::new())
    }
}

impl<E, F> TextVisitor<E> for F
where
    F: FnMut(usize, GeneratedText, &mut BehindText<'_>) -> Result<(), WalkError<E>>,
{
    fn done(&mut self, index: usize, text: GeneratedText, behind: &mut BehindText<'_>) -> Result<(), WalkError<E>> {
        self(index, text, behind)
    }
}

/// Continues each prompt and those that arrive in the meantime. Results go to the visitor as they finish.
///
/// Each `max_tokens` is at least 1 and fits the model's context after its prompt. As many texts are decoded together as
/// the cache has room for, at least one. When a quarter of them are done, more are started. Prompts started together
/// share their prefixes.
pub(crate) fn generate<E>(
    model: &dyn PackedDecoder,
    prompts: &[Arc<TokenPrompt>],
    vocabulary: &GenerationVocabulary<'_>,
    schedule: ScheduleOptions<'_>,
    visitor: &mut dyn TextVisitor<E>,
) -> Result<Usage, WalkError<E>> {
    let (active, drafts) = (Vec::new(), DraftStatistics::default());
    let mut generation = TextBatch { model, vocabulary, schedule, visitor, active, drafts, usage: Usage::default() };
    let (mut waiting, mut begun) = (prompts.iter().cloned().collect::<VecDeque<_>>(), 0);
    loop {
        // Started in batches, because prompts share prefixes only within a batch.
        let has_room = generation.active.len() <= schedule.side_by_side * 3 / 4;
        let places = schedule.side_by_side.saturating_sub(generation.active.len() + waiting.len());
        waiting.extend(generation.visitor.arrived(if has_room { places } else { 0 })?);
        if waiting.is_empty() && generation.active.is_empty() {
            return Ok(generation.usage);
        }
        if has_room && !waiting.is_empty() {
            let prompts = waiting.make_contiguous();
            let count = generation.admit(prompts);
            generation.begin(&prompts[..count], begun)?;
            waiting.drain(..count);
            begun += count;
        }
        generation.step()?;
    }
}

/// A text with its draft and the corresponding rows of hidden states.
struct DraftedText {
    text: OpenText,
    draft: Draft,
    rows: Range<usize>,
    /// Keys and values of the new tokens; those of a prompt are in its path.
    span: Option<Arc<KvSpan>>,
}

/// Texts being generated.
struct TextBatch<'d, E> {
    model: &'d dyn PackedDecoder,
    vocabulary: &'d GenerationVocabulary<'d>,
    schedule: ScheduleOptions<'d>,
    visitor: &'d mut dyn TextVisitor<E>,
    active: Vec<OpenText>,
    drafts: DraftStatistics,
    usage: Usage,
}

impl<E> TextBatch<'_, E> {
    /// Number of prompts that can be started now.
    fn admit(&mut self, prompts: &[Arc<TokenPrompt>]) -> usize {
        let (count, set_aside) = admit(self.model, prompts, self.schedule, self.active.len(), self.set_aside());
        self.usage.peak_cache_bytes = self.usage.peak_cache_bytes.max(set_aside);
        count
    }

    /// Bytes of cache reserved for the active texts: spans of their prompts and maximum growth.
    fn set_aside(&self) -> u64 {
        let prompts = self.active.iter().flat_map(|text| &text.path[..text.prompt_spans]);
        // Keyed by address: texts with a common prefix share spans, which count once.
        let spans: BTreeMap<*const KvSpan, usize> = prompts.map(|span| (Arc::as_ptr(span), span.len())).collect();
        let held: u64 = spans.values().map(|len| self.model.cache_bytes(*len) as u64).sum();
        held + self
            .active
            .iter()
            .map(|text| growth_bytes(self.model, text.prompt.max_tokens, self.schedule.drafting))
            .sum::<u64>()
    }

    /// Runs the prompts, starting at position `first` of the work list, and chooses their first tokens.
    fn begin(&mut self, prompts: &[Arc<TokenPrompt>], first: usize) -> Result<(), WalkError<E>> {
        let tree = tree(prompts, self.schedule.share_prefixes);
        let (model, kept) = (self.model, self.schedule.kept);
        let before_last = |node: usize| tree.tokens(node).len() - usize::from(!tree.node(node).ends.is_empty());
        let reused = kept.map(|kept| kept.reuse(model, &tree, &before_last)).transpose()?.unwrap_or_default();
        let prompt_tokens = tree.token_count() - reused.token_count();
        self.usage.tokens_computed += prompt_tokens;
        let written = prompts.iter().map(|prompt| prompt.max_tokens as u64).sum::<u64>();
        self.schedule.progress.plan(prompts.len(), prompt_tokens + written);
        self.usage.tokens_unshared += prompts.iter().map(|p| p.tokens.len() as u64).sum::<u64>();
        let last =
            |node: usize| if tree.node(node).ends.is_empty() { Vec::new() } else { vec![tree.tokens(node).len() - 1] };
        // Memory for the texts is already reserved.
        let limits = ScheduleLimits { cache: u64::MAX, ..self.schedule.limits };
        let mut visit = |computed: ComputedGroup<'_>| -> Result<(), WalkError<E>> {
            let ended =
                computed.stretches.iter().filter(|(_, wanted)| !wanted.is_empty()).map(|(stretch, _)| stretch.node);
            let mut texts = Vec::new();
            for (row, node) in ended.enumerate() {
                let path = computed.path(node);
                texts.extend(tree.node(node).ends.iter().map(|end| DraftedText {
                    text: OpenText::new(first + end, prompts[*end].clone(), path.clone(), self.vocabulary),
                    draft: Draft::default(),
                    rows: row..row + 1,
                    span: None,
                }));
            }
            self.advance(computed.hidden, texts)
        };
        walk(model, &tree, limits, &last, &reused, None, &mut visit).map(|_| ())
    }

    /// Generates one token per text, plus accepted draft tokens.
    fn step(&mut self) -> Result<(), WalkError<E>> {
        if self.active.is_empty() {
            return Ok(());
        }
        let texts = std::mem::take(&mut self.active);
        let worth = self.drafts.worth(texts.len(), self.model.idle_rows());
        let mut passed = Vec::with_capacity(texts.len());
        let mut segments = Vec::with_capacity(texts.len());
        let mut row = 0;
        for text in texts {
            let draft = self.draft(&text, worth);
            let last = *text.tokens.last().expect("a text has tokens");
            let tokens = [&[last], draft.tokens.as_slice()].concat();
            let rows = row..row + tokens.len();
            row = rows.end;
            segments.push(PackedSegment { past: text.path.clone(), wanted: (0..tokens.len()).collect(), tokens });
            passed.push(DraftedText { text, draft, rows, span: None });
        }
        let output = self.model.forward(&segments)?;
        // They hold the texts' spans, which could not be freed when joined.
        drop(segments);
        self.usage.tokens_computed += row as u64;
        passed.iter_mut().zip(output.spans).for_each(|(passed, span)| passed.span = Some(span));
        self.drafts.fade();
        self.advance(&output.hidden, passed)
    }

    /// Drafts the next tokens of a text.
    fn draft(&self, text: &OpenText, worth: f64) -> Draft {
        // The token after the draft is chosen by the model.
        let room = text.prompt.max_tokens - text.generated().len() - 1;
        match drafting_of(self.model, self.schedule.drafting) {
            Drafting::Off => Draft::default(),
            Drafting::Lookup => self.drafts.draft(&text.tokens, room, worth),
        }
    }

    /// Advances each text with its rows of hidden states.
    fn advance(&mut self, hidden: &Tensor, passed: Vec<DraftedText>) -> Result<(), WalkError<E>> {
        // Greedy decoding needs only the largest logit, which the head computes without materialising a whole row.
        let (whole, greedy): (Vec<_>, Vec<_>) = passed.into_iter().partition(|passed| passed.text.random.is_some());
        if !greedy.is_empty() {
            let rows: Vec<usize> = greedy.iter().flat_map(|passed| passed.rows.clone()).collect();
            let (model, hidden) = (self.model, pick(hidden, &rows)?);
            let heads = model.head(&hidden, &vec![Vec::new(); rows.len()])?;
            self.go_on(greedy, |at| NextToken::Head { head: &heads[at], hidden: &hidden, at, model })?;
        }
        // Full rows of logits are computed in blocks, only for texts that need them.
        let mut whole = whole.into_iter().peekable();
        while whole.peek().is_some() {
            let (mut part, mut rows): (Vec<DraftedText>, Vec<usize>) = Default::default();
            while let Some(next) = whole.next_if(|next| rows.len() + next.rows.len() <= LOGIT_ROWS) {
                rows.extend(next.rows.clone());
                part.push(next);
            }
            let logits = self.model.logits(&pick(hidden, &rows)?)?;
            let width = logits.dim(1)?;
            with_values(&logits, |values| self.go_on(part, |row| NextToken::Logits(&values[row * width..][..width])))??;
        }
        Ok(())
    }

    /// Advances texts with consecutive rows.
    fn go_on<'r>(&mut self, texts: Vec<DraftedText>, row: impl Fn(usize) -> NextToken<'r>) -> Result<(), WalkError<E>> {
        let mut first = 0;
        for DraftedText { mut text, draft, rows, span } in texts {
            let (tokens, accepted) = (text.generated().len(), text.accepted);
            let ended = text.advance(&draft.tokens, |at| row(first + at), self.vocabulary)?;
            let wanted = ended.is_some() || self.visitor.grown(text.index, text.generated());
            let ended = if wanted { ended } else { Some(text.give_up(self.vocabulary)) };
            first += rows.len();
            let accepted = text.accepted - accepted;
            self.drafts.learn(&draft, accepted);
            self.usage.tokens_generated += (text.generated().len() - tokens) as u64;
            self.usage.tokens_drafted += draft.tokens.len() as u64;
            self.usage.drafts_accepted += accepted as u64;
            // Rejected draft tokens were computed but not planned.
            self.schedule.progress.plan(0, (draft.tokens.len() - accepted) as u64);
            match (ended, span) {
                (Some(generated), _) => {
                    self.usage.tokens_unshared += generated.token_ids.len().saturating_sub(1) as u64;
                    self.schedule.progress.skip((text.prompt.max_tokens - generated.token_ids.len()) as u64);
                    let (model, progress) = (self.model, self.schedule.progress);
                    let mut behind =
                        BehindText { model, tokens: &text.tokens, path: &text.path, progress, computed: 0 };
                    self.visitor.done(text.index, generated, &mut behind)?;
                    if let Some(kept) = self.schedule.kept {
                        // The next turn of a conversation starts with this text.
                        let held: usize = text.path.iter().map(|span| span.len()).sum();
                        kept.keep(model, &text.tokens[..held], &text.path);
                    }
                    self.usage.tokens_computed += behind.computed;
                    self.usage.tokens_unshared += behind.computed;
                }
                (None, span) => {
                    if let Some(span) = span {
                        text.keep(self.model, span)?;
                    }
                    self.active.push(text);
                }
            }
        }
        Ok(())
    }
}

/// The number of prompts that can be started beside `active` texts with `set_aside` reserved bytes: as many as fit, at
/// least one if no text is active. Also returns the bytes then reserved.
fn admit(
    model: &dyn PackedDecoder,
    prompts: &[impl Borrow<TokenPrompt>],
    schedule: ScheduleOptions<'_>,
    active: usize,
    mut set_aside: u64,
) -> (usize, u64) {
    let bytes_of = |tokens| model.cache_bytes(tokens) as u64;
    let mut count = 0;
    while let Some(prompt) = prompts.get(count).map(Borrow::borrow).filter(|_| active + count < schedule.side_by_side) {
        // The prefix shared with the previous prompt is already counted; a span is split where they diverge.
        let before = count.checked_sub(1).filter(|_| schedule.share_prefixes).map(|before| prompts[before].borrow());
        // Encoder input is shared as a whole or not at all.
        let before = before.filter(|before| before.tokens[..before.source] == prompt.tokens[..prompt.source]);
        let shared =
            before.map_or(0, |before| before.tokens.iter().zip(&prompt.tokens).take_while(|(a, b)| a == b).count());
        let piece = schedule.limits.tokens.max(prompt.source);
        let own = bytes_in_pieces(prompt.tokens.len() - shared, piece, &bytes_of) + bytes_of(1);
        let bytes = set_aside + own + growth_bytes(model, prompt.max_tokens, schedule.drafting);
        if bytes > schedule.limits.cache && active + count > 0 {
            break;
        }
        set_aside = bytes;
        count += 1;
    }
    (count, set_aside)
}

/// The cost of continuing the prompts if every text reached its limit, in groups that start and end together. Computes
/// nothing.
pub(crate) fn plan_texts(model: &dyn PackedDecoder, prompts: &[TokenPrompt], schedule: ScheduleOptions<'_>) -> Usage {
    let mut usage = Usage::default();
    let mut left = prompts;
    while !left.is_empty() {
        let (count, set_aside) = admit(model, left, schedule, 0, 0);
        let (group, rest) = left.split_at(count);
        let generated: u64 = group.iter().map(|prompt| prompt.max_tokens as u64).sum();
        let prompts: u64 = group.iter().map(|prompt| prompt.tokens.len() as u64).sum();
        let tokens_computed = tree(group, schedule.share_prefixes).token_count() + generated;
        usage += Usage {
            tokens_unshared: prompts + generated,
            tokens_computed,
            peak_cache_bytes: set_aside,
            tokens_generated: generated,
            ..Usage::default()
        };
        left = rest;
    }
    usage
}

/// The prefix tree of all prompts.
fn tree<P: Borrow<TokenPrompt>>(prompts: &[P], share: bool) -> PrefixTree<'_> {
    let alone = |index: usize| if share { 0 } else { index };
    let prompts = prompts.iter().map(Borrow::borrow);
    PrefixTree::new(in_groups(prompts.map(|prompt: &TokenPrompt| (prompt.tokens.as_slice(), prompt.source)), alone))
}

/// How texts are drafted with this model: recurrent states cannot drop the rejected part of a draft.
fn drafting_of(model: &dyn PackedDecoder, drafting: Drafting) -> Drafting {
    if model.state_bytes() > 0 { Drafting::Off } else { drafting }
}

/// Maximum bytes held by a text of this many tokens: joined spans, short spans while they are joined, and the spans of
/// a pass.
fn growth_bytes(model: &dyn PackedDecoder, tokens: usize, drafting: Drafting) -> u64 {
    let (states, spans) = (model.state_bytes(), tokens.div_ceil(JOIN));
    let (longest, pass) = match drafting_of(model, drafting) {
        Drafting::Off => (JOIN, 1),
        // Span lengths vary with drafts. Spans of one token more than `JOIN` need the most memory.
        Drafting::Lookup => (JOIN + 1, 1 + LONGEST),
    };
    let keys = spans * (model.cache_bytes(longest) - states) + JOIN * (model.cache_bytes(1) - states);
    // Only the last span has states, and during a pass the new one.
    (keys + model.cache_bytes(pass) + states) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::ConstraintGrammars;
    use crate::tokenizer::Tokenizer;
    use crate::weights::GgufFile;

    const RANDOM: Sampling = Sampling::Random {
        temperature: 1.0,
        limits: probity_lm::SamplingLimits { top_k: None, top_p: None, min_p: None },
        seed: 0,
    };

    fn prompt(stop: &[&str], constraint: Option<Constraint>) -> Arc<TokenPrompt> {
        let stop = stop.iter().map(|&text| text.to_owned()).collect();
        Arc::new(TokenPrompt { tokens: vec![1], source: 0, max_tokens: 100, stop, sampling: RANDOM, constraint })
    }

    #[test]
    fn a_rightly_guessed_token_that_completes_a_constraint_counts_as_right() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/goldens/tokenizers/tiny-bpe-smollm.gguf");
        let tokenizer = Tokenizer::from_gguf(&GgufFile::open(&path).expect("golden")).expect("valid");
        let grammars = ConstraintGrammars::new(&tokenizer).expect("a vocabulary");
        let constrain = |constraint: &Constraint| grammars.start(constraint);
        let no_text = |error: crate::tokenizer::TokenizerError| Strayed::NoText { why: error.to_string() };
        let decode = |ids: &[u32]| tokenizer.decode(ids).map_err(no_text);
        let vocabulary = GenerationVocabulary { decode: &decode, ends: tokenizer.ends(), constrain: &constrain };
        let tokens = tokenizer.encode_text("xy").expect("encoded");
        let prompt = prompt(&[], Some(Constraint::Choice(vec!["xy".to_owned()])));
        let wanted: Vec<Vec<f32>> = tokens
            .iter()
            .map(|token| (0..tokenizer.vocab_size() as u32).map(|id| if id == *token { 50.0 } else { 0.0 }).collect())
            .collect();
        let mut text = OpenText::new(0, prompt.clone(), Vec::new(), &vocabulary);
        let ended =
            text.advance(&tokens, |at| NextToken::Logits(&wanted[at]), &vocabulary).expect("computed").expect("ended");
        assert_eq!((ended.text.as_str(), ended.finish), ("xy", Some(Finish::EndOfTurn)));
        assert_eq!((&ended.token_ids, ended.accepted), (&tokens, tokens.len()));
        // An end token was also drafted; it is not part of the text.
        let ends = [tokens[0]];
        let vocabulary = GenerationVocabulary { ends: &ends, ..vocabulary };
        let mut text = OpenText::new(0, prompt.clone(), Vec::new(), &vocabulary);
        let ended =
            text.advance(&tokens, |at| NextToken::Logits(&wanted[at]), &vocabulary).expect("computed").expect("ended");
        assert_eq!((ended.token_ids.len(), ended.accepted), (0, 0));
    }

    #[test]
    fn a_stop_sequence_is_found_however_many_tokens_without_text_lie_in_it() {
        // Ids above 999 are special tokens, which decoding drops.
        let decode = |ids: &[u32]| {
            let spelled = ids.iter().filter(|id| **id < 1000).filter_map(|id| char::from_u32(*id));
            Ok(spelled.collect::<String>())
        };
        let vocabulary =
            GenerationVocabulary { decode: &decode, ends: &[], constrain: &|_| Err(ConstraintError::NoChoice) };
        let prompt = prompt(&["stop"], None);
        let mut text = OpenText::new(0, prompt.clone(), Vec::new(), &vocabulary);
        let letters = "so st".chars().chain(std::iter::repeat_n('\u{fff0}', 40)).chain("o".chars());
        for letter in letters {
            assert!(text.push(Some(letter as u32), &vocabulary).is_none());
        }
        let ended = text.push(Some('p' as u32), &vocabulary).expect("stopped");
        assert_eq!((ended.text.as_str(), ended.finish), ("so ", Some(Finish::Stop)));
    }

    #[test]
    fn tokens_that_cannot_be_decoded_are_told_and_no_empty_text() {
        let no_text = || Strayed::NoText { why: "no text".to_owned() };
        let decode = |ids: &[u32]| if ids.contains(&7) { Err(no_text()) } else { Ok("x".to_owned()) };
        let vocabulary =
            GenerationVocabulary { decode: &decode, ends: &[0], constrain: &|_| Err(ConstraintError::NoChoice) };
        for (stop, tokens) in [(&[][..], [5, 7, 0]), (&["stop"], [5, 6, 7])] {
            let prompt = prompt(stop, None);
            let mut text = OpenText::new(0, prompt.clone(), Vec::new(), &vocabulary);
            let ended = tokens.iter().find_map(|token| text.push(Some(*token), &vocabulary)).expect("ended");
            assert_eq!((ended.finish, ended.strayed), (None, Some(no_text())));
        }
    }
}
