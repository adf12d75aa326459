//! Encodes prompts and labels as tokens, and determines the boundary between prompt and answer.

use std::sync::OnceLock;

use probity_lm::{
    ChatFormat, LabelError, LabelSet, Message, Prompt, Role, Termination, ThinkingStyle, Thought, resolve_variants,
};

use crate::chat::{
    ChatError, ChatStart, ChatTemplate, TemplateVariables, ThinkingTemplate, behind_thought, first_altered,
};
use crate::tokenizer::{Marked, Tokenizer, TokenizerError};

/// A tokenizer with the prompt format of the model: a chat template, if any, or the inputs of encoder and decoder.
pub struct PromptEncoder {
    tokenizer: Tokenizer,
    chat: Result<ChatTemplate, ChatError>,
    /// How the model thinks; probed when first needed.
    thinking: OnceLock<Option<ThinkingTemplate>>,
    end_of_turn: Option<u32>,
    /// Start of a decoder's answer in an encoder-decoder.
    answer_start: Option<Vec<u32>>,
    /// Classes of the model's class head.
    classes: Vec<String>,
    /// Whether it reads prompts as a whole, with the tokenizer's special tokens.
    reads_whole: bool,
    /// Padding token, which a class head ignores at the end of a text.
    padding: Option<u32>,
    /// Token whose last occurrence a class head reads, if any.
    class_end: Option<u32>,
    /// Length of the longest token in characters, without spaces.
    longest: OnceLock<usize>,
}

/// Message content for probing a template.
const ANSWER: &str = "answer";

/// Texts below this many bytes are tokenised without estimating first.
const LONG_TEXT: usize = 1 << 18;

/// Why a prompt could not be encoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum EncodeError {
    /// The chat could not be rendered.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Chat(#[from] ChatError),
    /// The tokenizer failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The labels are ambiguous, or one has no tokens.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Labels(#[from] LabelError),
    /// Terminated labels were requested, but the model has no end-of-answer token.
    #[error("the model has no end-of-turn token to end a label with")]
    #[diagnostic(help("choose labels of which none is a prefix of another, and omit the termination"))]
    NoEnd,
    /// Tokens for an encoder-decoder, but the model has no encoder.
    #[error("the model has no encoder that reads `source`")]
    #[diagnostic(help("pass all tokens as one prompt"))]
    NoSource,
    /// The answer of an encoder-decoder has no start token.
    #[error("the answer needs at least one token")]
    #[diagnostic(help("start it with the model's start token"))]
    NoStart,
    /// A class head was requested, but the model has none.
    #[error("the model has no class head")]
    #[diagnostic(help(
        "use a reward model or a classifier, whose config.json names an architecture …ForSequenceClassification; see \
         `probity model inspect`"
    ))]
    NoClasses,
    /// The text lacks the token that the class head reads.
    #[error("the text does not contain token {id} (`{token}`), which the model's class head reads")]
    #[diagnostic(help(
        "download tokenizer.json and config.json again: texts must end with eos_token_id; end a prompt of token ids \
         with it"
    ))]
    NoClassEnd {
        /// Text of the token.
        token: String,
        /// Its id.
        id: u32,
    },
    /// The model reads two texts as a pair, but has no separator.
    #[error("the model's tokenizer has no separator for a pair of texts")]
    #[diagnostic(help("download its tokenizer.json again; it lacks a post_processor for pairs"))]
    NoPair,
    /// Tokens were requested, but the model has a class head.
    #[error("the model is a classifier ({}) and has no token probabilities", names.join(", "))]
    #[diagnostic(help("use the method reward, \"classes\": true in `logprobs` and `serve`, or a language model"))]
    ClassesAlone {
        /// The classes.
        names: Vec<String>,
    },
    /// A thought was requested, but the model does not think.
    #[error("the model's chat template has no thoughts")]
    #[diagnostic(help(
        "omit the thought, or use a model that thinks; `probity model inspect` shows how a model thinks"
    ))]
    NoThoughts,
    /// No token of the prompt is left to condition on.
    #[error("the answer merges with the whole prompt, so no context is left")]
    #[diagnostic(help("add some text before it"))]
    NoCondition,
    /// A token id outside the vocabulary.
    #[error("token {id} is not in the vocabulary of {vocab_size} tokens")]
    UnknownToken {
        /// The id.
        id: u32,
        /// One more than the highest id.
        vocab_size: usize,
    },
}

/// A prompt and its possible labels in tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedLabels {
    /// Tokens that all labels are conditioned on.
    pub prefix: Vec<u32>,
    /// Number of these that an encoder reads; 0 without an encoder.
    pub source: usize,
    /// Whether that is the whole prompt, so no label merges with its end.
    pub is_whole: bool,
    /// Per label its distinct variants, each at least one token.
    pub labels: Vec<Vec<Vec<u32>>>,
}

/// A prompt and the text that follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedContinuation {
    /// Tokens that the continuation is conditioned on.
    pub prefix: Vec<u32>,
    /// Number of these that an encoder reads; 0 without an encoder.
    pub source: usize,
    /// The tokens to score; empty for an empty text.
    pub continuation: Vec<u32>,
}

/// A prompt whose end is still text, so that a suffix can be encoded together with it.
struct Open {
    /// Tokens before that text.
    before: Vec<u32>,
    /// Number of these that an encoder reads.
    source: usize,
    /// Absent for a prompt of token ids, which does not merge with a suffix.
    text: Option<Marked>,
    /// Trailing spaces, which belong to the suffix.
    spaces: String,
}

/// A prompt and its possible suffixes in tokens.
struct PartedPrompt {
    prefix: Vec<u32>,
    /// Number of the prefix's tokens that an encoder reads.
    source: usize,
    /// Whether the prefix is the whole prompt, so no suffix merges with its end.
    is_whole: bool,
    suffixes: Vec<Vec<u32>>,
}

impl PromptEncoder {
    /// Creates an encoder with the chat template from the tokenizer's files. If the template is invalid Jinja, plain
    /// prompts still work and chats return the error.
    pub fn new(tokenizer: Tokenizer) -> Self {
        let template = tokenizer.chat_template().ok_or(ChatError::Missing);
        let chat = template.and_then(|source| ChatTemplate::new(&source.text, tokenizer.named_tokens(), &source.path));
        let mut encoder = Self {
            tokenizer,
            chat,
            thinking: OnceLock::new(),
            end_of_turn: None,
            answer_start: None,
            classes: Vec::new(),
            reads_whole: false,
            padding: None,
            class_end: None,
            longest: OnceLock::new(),
        };
        encoder.end_of_turn = encoder.find_end_of_turn();
        encoder
    }

    /// Sets the start of the answer for an encoder-decoder. The encoder reads the prompt with the tokenizer's special
    /// tokens. Chats need no template, as there are no turns.
    #[must_use]
    pub fn with_answer_start(self, tokens: Vec<u32>) -> Self {
        Self { answer_start: Some(tokens), chat: Err(ChatError::Missing), end_of_turn: None, ..self }
    }

    /// Sets the classes of a class head. `reads_whole` is set for an encoder, which reads prompts with the tokenizer's
    /// special tokens. A decoder's head reads the last token that is not `padding`; padding after it is dropped.
    #[must_use]
    pub fn with_classes(self, classes: Vec<String>, reads_whole: bool, padding: Option<u32>) -> Self {
        Self { classes, reads_whole, padding, ..self }
    }

    /// For a class head on a decoder that reads the last `end` token; the encoder reads the text as a whole.
    #[must_use]
    pub fn with_class_end(self, end: u32) -> Self {
        Self { class_end: Some(end), ..self }
    }

    /// Classes of the class head; empty for a language model.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Whether the model reads prompts as a whole, so that prompts share no prefix.
    pub fn reads_whole(&self) -> bool {
        self.reads_whole
    }

    /// Whether the model is an encoder-decoder.
    pub fn has_source(&self) -> bool {
        self.answer_start.is_some()
    }

    /// Whether [`Prompt::Chat`] can be encoded.
    pub fn takes_chats(&self) -> bool {
        self.answer_start.is_some() || self.reads_whole || self.chat.is_ok()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The chat template, if the model has a valid one.
    pub fn chat(&self) -> Option<&ChatTemplate> {
        self.chat.as_ref().ok()
    }

    /// How the model thinks; `None` if it does not, or has no chat template.
    pub fn thinking(&self) -> Option<&ThinkingStyle> {
        self.thinking_template().map(|thinking| &thinking.style)
    }

    fn thinking_template(&self) -> Option<&ThinkingTemplate> {
        let find = || ThinkingTemplate::find(self.chat()?, |token| self.tokenizer.token_id(token).is_some());
        self.thinking.get_or_init(find).as_ref()
    }

    /// How the answer of a chat begins, and the thought that follows it.
    fn chat_start<'f>(&self, format: &'f ChatFormat) -> Result<(ChatStart, Option<&'f str>), EncodeError> {
        let as_template = format.thought == Thought::AsTemplate;
        let start = match (&format.thought, self.thinking_template()) {
            (Thought::AsTemplate, _) | (Thought::Closed, None) => ChatStart::default(),
            (Thought::Closed, Some(thinking)) => thinking.closed.clone(),
            (Thought::Open | Thought::Text(_), thinking) => {
                thinking.and_then(|thinking| thinking.open.clone()).ok_or(EncodeError::NoThoughts)?
            }
        };
        let mut variables = format.variables.clone();
        // The thought goes before the caller's value of its switch.
        if let Some(switch) = self.thinking().and_then(ThinkingStyle::switch).filter(|_| !as_template) {
            variables.remove(switch);
        }
        variables.extend(start.variables);
        let start = ChatStart { variables, after: start.after };
        Ok((start, if let Thought::Text(text) = &format.thought { Some(text) } else { None }))
    }

    /// Whether a thought is open where the answer of a chat begins.
    pub fn opens_thought(&self, format: &ChatFormat) -> bool {
        let (Some(chat), Some(thinking)) = (self.chat(), self.thinking_template()) else { return false };
        match format.thought {
            Thought::Open => true,
            Thought::Closed | Thought::Text(_) => false,
            Thought::AsTemplate => thinking.opens(chat, &format.variables),
        }
    }

    /// Why the model's chat template is invalid. `None` if it is valid or missing.
    pub fn chat_error(&self) -> Option<&ChatError> {
        self.chat.as_ref().err().filter(|error| **error != ChatError::Missing)
    }

    /// The token that ends an answer to this kind of prompt: in a chat, the one that the template puts after an
    /// assistant's message, otherwise end of sequence. `None` if the tokenizer has neither.
    pub fn end_of_answer(&self, prompt: &Prompt) -> Option<u32> {
        match prompt {
            Prompt::Chat { .. } => self.end_of_turn.or(self.tokenizer.eos()),
            Prompt::Text(_) | Prompt::Tokens(_) | Prompt::Pair { .. } => self.tokenizer.eos().or(self.end_of_turn),
        }
    }

    /// A lower bound on the number of tokens of a long prompt and the text after it, without tokenising, which needs
    /// hundreds of times their memory. 0 for short texts. Spaces are not counted, because tokenizers join them. Other
    /// characters count half, because normalisation may have split one into two.
    pub(crate) fn least_tokens(&self, prompt: &Prompt, text: &str) -> usize {
        let texts: Vec<&str> = match prompt {
            Prompt::Text(prompt) => vec![prompt, text],
            Prompt::Chat { messages, answer_prefix, .. } => {
                messages.iter().map(|message| message.content.as_str()).chain([answer_prefix.as_str(), text]).collect()
            }
            Prompt::Tokens(_) | Prompt::Pair { .. } => vec![text],
        };
        if texts.iter().map(|text| text.len()).sum::<usize>() < LONG_TEXT {
            return 0;
        }
        let solid = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
        let longest = *self.longest.get_or_init(|| {
            let ids = 0..self.tokenizer.vocab_size() as u32;
            ids.map(|id| solid(&self.tokenizer.token_text(id))).max().unwrap_or(0).max(1)
        });
        texts.into_iter().map(solid).sum::<usize>() / (2 * longest)
    }

    /// The tokens of a prompt to continue. Trailing spaces of the text or answer prefix stay with the prompt.
    pub fn encode_prompt(&self, prompt: &Prompt) -> Result<Vec<u32>, EncodeError> {
        Ok(self.encode_continuation(prompt, "")?.prefix)
    }

    /// The tokens of a complete prompt: a chat's last message is an answer, and no new one is begun. An encoder reads
    /// the last message as the second text of a pair and the others as the first.
    pub fn encode_whole_prompt(&self, prompt: &Prompt) -> Result<Vec<u32>, EncodeError> {
        if self.classes.is_empty() {
            return Err(EncodeError::NoClasses);
        }
        let mut ids = self.encode_with_padding(prompt)?;
        if ids.is_empty() {
            return Ok(ids);
        }
        if let Some(end) = self.class_end.filter(|end| !ids.contains(end)) {
            return Err(EncodeError::NoClassEnd { token: self.tokenizer.token_text(end), id: end });
        }
        let last = ids.iter().rposition(|id| Some(*id) != self.padding).unwrap_or(0);
        ids.truncate(last + 1);
        Ok(ids)
    }

    fn encode_with_padding(&self, prompt: &Prompt) -> Result<Vec<u32>, EncodeError> {
        match prompt {
            Prompt::Chat { messages, .. } if self.reads_whole => match &messages[..] {
                [_, _, ..] if self.tokenizer.between().is_empty() => Err(EncodeError::NoPair),
                [others @ .., last] if !others.is_empty() => {
                    let others: Vec<&str> = others.iter().map(|message| message.content.as_str()).collect();
                    Ok(self.tokenizer.encode_pair(&others.join("\n"), &last.content)?)
                }
                _ => self.in_frame(&prompt.text()),
            },
            Prompt::Text(text) if self.reads_whole => self.in_frame(text),
            Prompt::Chat { messages, format, .. } => {
                let template = self.chat.as_ref().map_err(ChatError::clone)?;
                let text = self.marked_chat(template, (messages, &format.variables), &[], false)?;
                Ok(self.tokenizer.encode(&text)?)
            }
            Prompt::Text(text) => Ok([self.text_start(), self.tokenizer.encode_text(text)?].concat()),
            Prompt::Tokens(ids) => self.known(ids),
            Prompt::Pair { .. } => Err(EncodeError::NoSource),
        }
    }

    /// A text with the tokenizer's special tokens; empty if the text has no tokens of its own.
    fn in_frame(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        let ids = self.tokenizer.encode_whole(text)?;
        let frame: usize = self.tokenizer.frame().iter().map(Vec::len).sum();
        Ok(if ids.len() > frame { ids } else { Vec::new() })
    }

    /// Renders a chat. Special-token literals in its messages are marked by a character that occurs neither in them nor
    /// in `others`.
    fn marked_chat(
        &self,
        template: &ChatTemplate,
        (messages, variables): (&[Message], &TemplateVariables),
        others: &[&str],
        begin_answer: bool,
    ) -> Result<Marked, EncodeError> {
        let texts = messages.iter().map(|m| m.content.as_str()).chain([template.source()]);
        // A character that occurs in none of the texts, because all occurrences are removed later.
        let sentinel = Tokenizer::sentinel(&texts.chain(others.iter().copied()))?;
        let protect = |message: &Message| self.tokenizer.protect(&message.content, sentinel);
        let contents = messages.iter().map(protect).collect::<Result<Vec<_>, _>>()?;
        let pairs = messages.iter().zip(&contents).map(|(m, content)| (m.role.as_str(), content.as_str()));
        let text = template.render_contents(pairs, variables, begin_answer)?;
        let kept = |(at, content): (usize, _)| {
            let role = messages[at].role;
            // Templates of reasoning models drop the reasoning of earlier answers.
            let is_earlier_answer = role == Role::Assistant && at + 1 < messages.len();
            (role, if is_earlier_answer { behind_thought(content, &text) } else { content })
        };
        let shown: Vec<(Role, &str)> = contents.iter().map(AsRef::as_ref).enumerate().map(kept).collect();
        // The model would see a changed message, and the change may have created a special token.
        match first_altered(&shown, &text) {
            Some(at) => Err(ChatError::Altered(messages[at].role.as_str().to_owned()).into()),
            None => Ok(Marked { text, sentinel: Some(sentinel) }),
        }
    }

    /// The prompt's tokens and those of each label's variants after it.
    ///
    /// Prompt and variant are encoded as one string; trailing spaces of the prompt count as the variant's. The prefix
    /// is the longest common token prefix of the prompt alone and all these strings, so that all labels are conditioned
    /// on the same tokens. The rest counts as the variant, including the end of the prompt after a merge across the
    /// boundary. A prompt of token ids has no text to merge with: variants follow it unchanged, without the space that
    /// sentencepiece puts before a text.
    pub fn encode_labels(&self, prompt: &Prompt, set: &LabelSet) -> Result<EncodedLabels, EncodeError> {
        let variants: Vec<String> = set.labels().iter().flat_map(|label| label.variants.iter().cloned()).collect();
        let PartedPrompt { prefix, source, is_whole, suffixes } = self.encode_after(prompt, &variants)?;
        let mut sequences = suffixes.into_iter();
        let mut by_label: Vec<Vec<Vec<u32>>> =
            set.labels().iter().map(|label| sequences.by_ref().take(label.variants.len()).collect()).collect();
        if set.termination() == Termination::EndOfTurn {
            let end = self.end_of_answer(prompt).ok_or(EncodeError::NoEnd)?;
            by_label.iter_mut().flatten().for_each(|tokens| tokens.push(end));
        }
        let labels = resolve_variants(set, &by_label)?;
        Ok(EncodedLabels { prefix, source, is_whole, labels })
    }

    /// The prompt's tokens and those of `text` after it, split as in [`encode_labels`](Self::encode_labels).
    pub fn encode_continuation(&self, prompt: &Prompt, text: &str) -> Result<EncodedContinuation, EncodeError> {
        if text.is_empty() {
            let Open { before: mut prefix, source, text, spaces } = self.open(prompt, &[])?;
            if let Some(mut text) = text {
                text.text.push_str(&spaces);
                prefix.extend(self.tokenizer.encode(&text)?);
            }
            return Ok(EncodedContinuation { prefix, source, continuation: Vec::new() });
        }
        let PartedPrompt { prefix, source, mut suffixes, .. } = self.encode_after(prompt, &[text.to_owned()])?;
        Ok(EncodedContinuation { prefix, source, continuation: suffixes.pop().unwrap_or_default() })
    }

    /// The common prefix of the prompt and of prompt + each suffix, the part of it that an encoder reads, and the rest
    /// of each.
    fn encode_after(&self, prompt: &Prompt, suffixes: &[String]) -> Result<PartedPrompt, EncodeError> {
        let Open { before: mut prefix, source, text, spaces } = self.open(prompt, suffixes)?;
        let Some(text) = text else {
            let sequences =
                suffixes.iter().map(|suffix| self.tokenizer.encode_following(suffix)).collect::<Result<_, _>>()?;
            return Ok(PartedPrompt { prefix, source, is_whole: true, suffixes: sequences });
        };
        let suffixes: Vec<String> = suffixes.iter().map(|suffix| format!("{spaces}{suffix}")).collect();
        // Encoded as one string: a label tokenised alone may be a token that the model would never write here.
        let encoded = self.tokenizer.encode_joint(&text, &suffixes)?;
        // Over all variants and the prompt alone, so that all labels are conditioned on the same tokens.
        let common =
            encoded.with_suffix.iter().map(|joint| common_len(&encoded.own, joint)).min().unwrap_or(encoded.own.len());
        prefix.extend(encoded.shared);
        prefix.extend(&encoded.own[..common]);
        let sequences = encoded.with_suffix.into_iter().map(|mut joint| joint.split_off(common)).collect();
        Ok(PartedPrompt { prefix, source, is_whole: common == encoded.own.len(), suffixes: sequences })
    }

    /// Start tokens of plain text; a chat's template writes them itself.
    fn text_start(&self) -> Vec<u32> {
        self.tokenizer.bos().filter(|_| self.tokenizer.adds_bos()).into_iter().collect()
    }

    /// The prompt up to its last text; `suffixes` can follow that text.
    fn open(&self, prompt: &Prompt, suffixes: &[String]) -> Result<Open, EncodeError> {
        if !self.classes.is_empty() {
            return Err(EncodeError::ClassesAlone { names: self.classes.clone() });
        }
        if let Some(start) = &self.answer_start {
            return self.open_answer(prompt, start, suffixes);
        }
        match prompt {
            Prompt::Tokens(ids) => Ok(Open { before: self.known(ids)?, source: 0, text: None, spaces: String::new() }),
            Prompt::Pair { .. } => Err(EncodeError::NoSource),
            Prompt::Text(text) => {
                let (body, spaces) = split_trailing_spaces(text);
                Ok(Open {
                    before: self.text_start(),
                    source: 0,
                    text: Some(Marked::ordinary(body)),
                    spaces: spaces.to_owned(),
                })
            }
            Prompt::Chat { messages, answer_prefix, format } => {
                let template = self.chat.as_ref().map_err(ChatError::clone)?;
                let (ChatStart { variables, after }, thought) = self.chat_start(format)?;
                let (prefix, spaces) = split_trailing_spaces(answer_prefix);
                let others: Vec<&str> = [answer_prefix.as_str()]
                    .into_iter()
                    .chain(thought)
                    .chain(suffixes.iter().map(String::as_str))
                    .collect();
                let mut text = self.marked_chat(template, (messages, &variables), &others, true)?;
                text.text.push_str(&after);
                if let Some(thought) = thought {
                    self.push_thought(&mut text, thought)?;
                }
                // From the user, not from data: it may contain special tokens (`<|channel|>final<|message|>`).
                text.text.push_str(prefix);
                let text = Some(text);
                Ok(Open { before: Vec::new(), source: 0, text, spaces: spaces.to_owned() })
            }
        }
    }

    /// Appends a thought and its end.
    fn push_thought(&self, text: &mut Marked, thought: &str) -> Result<(), EncodeError> {
        let sentinel = text.sentinel.expect("a chat is marked");
        text.text.push_str(&self.tokenizer.protect(thought, sentinel)?);
        let close = self.thinking().map_or("", |style| style.close.as_str());
        // The model may have written the white space before the mark.
        let space = &close[..close.len() - close.trim_start().len()];
        text.text.push_str(if thought.ends_with(space) { close.trim_start() } else { close });
        Ok(())
    }

    /// For an encoder-decoder, whose last text is the start of the answer.
    fn open_answer(&self, prompt: &Prompt, start: &[u32], suffixes: &[String]) -> Result<Open, EncodeError> {
        let after = |source: Vec<u32>, answer: &[u32]| (source.len(), [&source, answer].concat());
        let ((source, before), text) = match prompt {
            Prompt::Tokens(ids) => (after(self.known(ids)?, start), Some("")),
            Prompt::Pair { answer, .. } if answer.is_empty() => return Err(EncodeError::NoStart),
            Prompt::Pair { source, answer } => (after(self.known(source)?, &self.known(answer)?), None),
            Prompt::Text(text) => (after(self.tokenizer.encode_whole(text)?, start), Some("")),
            Prompt::Chat { messages, answer_prefix, .. } => {
                let contents: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
                (after(self.tokenizer.encode_whole(&contents.join("\n"))?, start), Some(answer_prefix.as_str()))
            }
        };
        let (body, spaces) = split_trailing_spaces(text.unwrap_or_default());
        // The answer prefix comes from the user; the text after it may be data.
        let sentinel = if body.is_empty() {
            None
        } else {
            Some(Tokenizer::sentinel(&suffixes.iter().map(String::as_str).chain([body]))?)
        };
        let text = text.map(|_| Marked { text: body.to_owned(), sentinel });
        Ok(Open { before, source, text, spaces: spaces.to_owned() })
    }

    /// Token ids, checked to be in the vocabulary.
    pub(crate) fn known(&self, ids: &[u32]) -> Result<Vec<u32>, EncodeError> {
        let vocab_size = self.tokenizer.vocab_size();
        match ids.iter().find(|&&id| id as usize >= vocab_size) {
            Some(&id) => Err(EncodeError::UnknownToken { id, vocab_size }),
            None => Ok(ids.to_vec()),
        }
    }

    /// Markers in the chat template (`<|im_start|>`) that are not in the vocabulary, so the model sees their
    /// characters.
    pub fn spelled_marks(&self) -> Vec<String> {
        let rendered = self.rendered_turns().unwrap_or_default();
        let mut marks: Vec<String> = Vec::new();
        for part in rendered.split("<|").skip(1) {
            let Some((name, _)) = part.split_once("|>") else { continue };
            let mark = format!("<|{name}|>");
            let is_one = self.tokenizer.encode_trusted(&mark).is_ok_and(|ids| ids.len() == 1);
            if !is_one && !name.contains(char::is_whitespace) && !marks.contains(&mark) {
                marks.push(mark);
            }
        }
        marks
    }

    /// A question and its answer rendered by the chat template.
    fn rendered_turns(&self) -> Option<String> {
        let turns = [("user", "question"), ("assistant", ANSWER)];
        self.chat()?.render_contents(turns.into_iter(), &TemplateVariables::new(), false).ok()
    }

    /// The first special token that the template puts after an assistant's message.
    fn find_end_of_turn(&self) -> Option<u32> {
        let rendered = self.rendered_turns()?;
        // Searched from the end, because a template may write `answer` before the messages.
        let after = &rendered[rendered.rfind(ANSWER)? + ANSWER.len()..];
        let ids = self.tokenizer.encode_trusted(after).ok()?;
        ids.into_iter().find(|&id| self.tokenizer.is_special(id))
    }
}

fn split_trailing_spaces(text: &str) -> (&str, &str) {
    // Vocabularies join a space with the following word; alone at a prompt's end it is a different token.
    text.split_at(text.trim_end_matches(' ').len())
}

fn common_len(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
