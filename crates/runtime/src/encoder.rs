//! Prompts and labels to tokens: the place where the boundary between what is given and what is asked is drawn.

use std::sync::OnceLock;

use probity_lm::{LabelError, LabelSet, Message, Prompt, Role, Termination, resolve_variants};

use crate::chat::{ChatError, ChatTemplate, behind_thought, first_altered};
use crate::tokenizer::{Marked, Tokenizer, TokenizerError};

/// A tokenizer and how prompts are laid out for the model: with a chat template where it has one, or for an encoder and
/// a decoder.
pub struct PromptEncoder {
    tokenizer: Tokenizer,
    chat: Result<ChatTemplate, ChatError>,
    end_of_turn: Option<u32>,
    /// What a decoder's answer begins with where an encoder reads the prompt.
    answer_start: Option<Vec<u32>>,
    /// What the model's head tells apart, in the place of tokens.
    classes: Vec<String>,
    /// Whether it reads prompts as a whole, in the tokenizer's frame.
    reads_whole: bool,
    /// What a class head does not read at a text's end.
    padding: Option<u32>,
    /// What a class head reads the last of, where it does.
    class_end: Option<u32>,
    /// The longest token, in characters that are no spaces.
    longest: OnceLock<usize>,
}

/// What is said in the turns that a template is tried with.
const ANSWER: &str = "answer";

/// Texts of fewer bytes are cut into tokens without another look.
const LONG_TEXT: usize = 1 << 18;

/// Why a prompt could not be encoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum EncodeError {
    /// The chat could not be laid out.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Chat(#[from] ChatError),
    /// The tokenizer failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The labels cannot be told apart, or one has no tokens.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Labels(#[from] LabelError),
    /// Terminated labels were asked for, and the model has no token that ends an answer.
    #[error("the model has no end-of-turn token to end a label with")]
    #[diagnostic(help("choose labels none of which begins another, which need no end"))]
    NoEnd,
    /// Tokens for an encoder and a decoder, and the model has no encoder.
    #[error("the model has no encoder that reads `source`")]
    #[diagnostic(help("give all tokens as one prompt"))]
    NoSource,
    /// An encoder-decoder's answer that begins with nothing.
    #[error("an answer begins with at least one token")]
    #[diagnostic(help("begin it with the model's start token"))]
    NoStart,
    /// A class head was asked for, and the model has none.
    #[error("the model has no head that tells classes apart")]
    #[diagnostic(help(
        "a reward model or a classifier is needed, whose config.json names an architecture …ForSequenceClassification; \
         `probity model inspect` shows what a model is"
    ))]
    NoClasses,
    /// A text without what the class head reads.
    #[error("the text has no token {id} (`{token}`), at which the model's class head reads it")]
    #[diagnostic(help(
        "tokenizer.json should end texts with eos_token_id of config.json: download both again; a prompt of token ids \
         ends with it"
    ))]
    NoClassEnd {
        /// How the token is written.
        token: String,
        /// Its id.
        id: u32,
    },
    /// Two texts for a model that reads them as a pair, and nothing that parts them.
    #[error("the model's tokenizer has no token that stands between the two texts of a pair")]
    #[diagnostic(help("its tokenizer.json has no post_processor for pairs: download it again"))]
    NoPair,
    /// Tokens were asked for, and the model has a class head in their place.
    #[error("the model tells classes apart ({}), and says nothing of tokens", names.join(", "))]
    #[diagnostic(help(
        "the method reward asks such models, and so does \"classes\": true in `logprobs` and `serve`; others need a \
         language model"
    ))]
    ClassesAlone {
        /// The classes.
        names: Vec<String>,
    },
    /// Nothing of the prompt is left for what is asked to be conditioned on.
    #[error("what is asked merges with the whole prompt, which leaves nothing to condition on")]
    #[diagnostic(help("put some text before it"))]
    NoCondition,
    /// A token id that the vocabulary does not have.
    #[error("token {id} is not in the vocabulary of {vocab_size} tokens")]
    UnknownToken {
        /// The id.
        id: u32,
        /// One more than the highest id.
        vocab_size: usize,
    },
}

/// A prompt and the labels that may follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedLabels {
    /// What all labels are conditioned on.
    pub prefix: Vec<u32>,
    /// How many of these an encoder reads; 0 in a model without one.
    pub source: usize,
    /// Whether that is the whole prompt: no label merges with its end.
    pub is_whole: bool,
    /// Per label its distinct variants, each at least one token.
    pub labels: Vec<Vec<Vec<u32>>>,
}

/// A prompt and the text that follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedContinuation {
    /// What the continuation is conditioned on.
    pub prefix: Vec<u32>,
    /// How many of these an encoder reads; 0 in a model without one.
    pub source: usize,
    /// The tokens that are asked about; empty for an empty text.
    pub continuation: Vec<u32>,
}

/// A prompt whose end is still text, so that what follows can be encoded together with it.
struct Open {
    /// What stands before that text.
    before: Vec<u32>,
    /// How many of these an encoder reads.
    source: usize,
    /// Absent where the prompt was given in tokens: what follows then merges with nothing.
    text: Option<Marked>,
    /// Its trailing spaces, which belong to what follows.
    spaces: String,
}

/// A prompt in tokens and the suffixes that may follow it.
struct PartedPrompt {
    prefix: Vec<u32>,
    /// How many tokens of the prefix an encoder reads.
    source: usize,
    /// Whether the prefix is the whole prompt: no suffix merges with its end.
    is_whole: bool,
    suffixes: Vec<Vec<u32>>,
}

impl PromptEncoder {
    /// An encoder with the chat template that the tokenizer's own files bring. Where it is no valid Jinja, plain
    /// prompts can still be encoded, and chats fail with the reason.
    pub fn new(tokenizer: Tokenizer) -> Self {
        let template = tokenizer.chat_template().ok_or(ChatError::Missing);
        let chat = template.and_then(|source| ChatTemplate::new(&source.text, tokenizer.named_tokens(), &source.path));
        let mut encoder = Self {
            tokenizer,
            chat,
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

    /// The same for an encoder-decoder: the encoder reads the prompt in the tokenizer's frame, and the decoder's answer
    /// begins with these tokens. It has no turns, so chats need no template.
    #[must_use]
    pub fn with_answer_start(self, tokens: Vec<u32>) -> Self {
        Self { answer_start: Some(tokens), chat: Err(ChatError::Missing), end_of_turn: None, ..self }
    }

    /// The same for a model whose head tells these classes apart; `reads_whole` where an encoder has that head, which
    /// reads prompts in the tokenizer's frame. A decoder's head reads the last token that is not `padding`, so what stands
    /// behind that is left out.
    #[must_use]
    pub fn with_classes(self, classes: Vec<String>, reads_whole: bool, padding: Option<u32>) -> Self {
        Self { classes, reads_whole, padding, ..self }
    }

    /// The same where a decoder has the class head, which reads a text's last `end`; the encoder reads it as a whole.
    #[must_use]
    pub fn with_class_end(self, end: u32) -> Self {
        Self { class_end: Some(end), ..self }
    }

    /// What the model's head tells apart, in the place of tokens; empty for a language model.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Whether the model reads prompts as a whole: none begins with another.
    pub fn reads_whole(&self) -> bool {
        self.reads_whole
    }

    /// Whether an encoder reads the prompt, and the answer is a decoder's.
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

    /// The chat template, where the model has one that can be read.
    pub fn chat(&self) -> Option<&ChatTemplate> {
        self.chat.as_ref().ok()
    }

    /// What is wrong with the chat template that the model brings; `None` where it can be read or there is none.
    pub fn chat_error(&self) -> Option<&ChatError> {
        self.chat.as_ref().err().filter(|error| **error != ChatError::Missing)
    }

    /// The token that ends an answer to a prompt of this kind: in a chat what the template puts after an assistant's
    /// message, else the end of the sequence. `None` where the tokenizer has neither.
    pub fn end_of_answer(&self, prompt: &Prompt) -> Option<u32> {
        match prompt {
            Prompt::Chat { .. } => self.end_of_turn.or(self.tokenizer.eos()),
            Prompt::Text(_) | Prompt::Tokens(_) | Prompt::Pair { .. } => self.tokenizer.eos().or(self.end_of_turn),
        }
    }

    /// So many tokens at least a prompt and the text behind it have, told without cutting them, which takes hundreds of
    /// times their memory; 0 of what is not long. Spaces do not count, since tokenizers join them, and of the others two
    /// may have been one before they were normalised.
    pub(crate) fn least_tokens(&self, prompt: &Prompt, text: &str) -> usize {
        let texts: Vec<&str> = match prompt {
            Prompt::Text(prompt) => vec![prompt, text],
            Prompt::Chat { messages, answer_prefix } => {
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

    /// The tokens of a prompt, to be continued from. Trailing spaces of the text or of the answer prefix stay with the
    /// prompt.
    pub fn encode_prompt(&self, prompt: &Prompt) -> Result<Vec<u32>, EncodeError> {
        Ok(self.encode_continuation(prompt, "")?.prefix)
    }

    /// The tokens of a prompt to which nothing is to be added: a chat's last message is an answer, and no other is begun. An
    /// encoder reads the last message as the second text of a pair, and the others as the first.
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
            Prompt::Chat { messages, .. } => {
                let template = self.chat.as_ref().map_err(ChatError::clone)?;
                let text = self.marked_chat(template, messages, &[], false)?;
                Ok(self.tokenizer.encode(&text)?)
            }
            Prompt::Text(text) => Ok([self.text_start(), self.tokenizer.encode_text(text)?].concat()),
            Prompt::Tokens(ids) => self.known(ids),
            Prompt::Pair { .. } => Err(EncodeError::NoSource),
        }
    }

    /// A text in the tokenizer's frame; nothing where it has no token of its own.
    fn in_frame(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        let ids = self.tokenizer.encode_whole(text)?;
        let frame: usize = self.tokenizer.frame().iter().map(Vec::len).sum();
        Ok(if ids.len() > frame { ids } else { Vec::new() })
    }

    /// A chat laid out, with literals of special tokens in its messages marked by a character that neither they nor
    /// `others` have.
    fn marked_chat(
        &self,
        template: &ChatTemplate,
        messages: &[Message],
        others: &[&str],
        begin_answer: bool,
    ) -> Result<Marked, EncodeError> {
        let texts = messages.iter().map(|m| m.content.as_str()).chain([template.source()]);
        // A character that none of all these has: it is taken out of the whole text later, wherever it stands.
        let sentinel = Tokenizer::sentinel(&texts.chain(others.iter().copied()))?;
        let protect = |message: &Message| self.tokenizer.protect(&message.content, sentinel);
        let contents = messages.iter().map(protect).collect::<Result<Vec<_>, _>>()?;
        let pairs = messages.iter().zip(&contents).map(|(m, content)| (m.role.as_str(), content.as_str()));
        let text = template.render_contents(pairs, begin_answer)?;
        let kept = |(at, content): (usize, _)| {
            let role = messages[at].role;
            // Templates of models that think leave the thoughts of earlier answers out.
            let is_earlier_answer = role == Role::Assistant && at + 1 < messages.len();
            (role, if is_earlier_answer { behind_thought(content, &text) } else { content })
        };
        let shown: Vec<(Role, &str)> = contents.iter().map(AsRef::as_ref).enumerate().map(kept).collect();
        // The model would be shown another text than the one given, and what is changed may have become a special token.
        match first_altered(&shown, &text) {
            Some(at) => Err(ChatError::Altered(messages[at].role.as_str().to_owned()).into()),
            None => Ok(Marked { text, sentinel: Some(sentinel) }),
        }
    }

    /// The prompt's tokens and those of each label's variants after it.
    ///
    /// Prompt and variant are encoded as one string (a prompt's trailing spaces count as the variant's). The prefix is
    /// what the prompt alone and all these strings begin with in tokens, so that all labels are conditioned on the same
    /// tokens; the rest, which after a merge across the boundary includes the end of the prompt, is charged to the
    /// variant. A prompt given in tokens has no text to merge with: variants follow it as they are, without the space
    /// that sentencepiece puts before a text.
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

    /// The prompt's tokens and those of `text` after it, by the rule of [`encode_labels`](Self::encode_labels).
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

    /// The common prefix of the prompt and of prompt + each suffix, how much of it an encoder reads, and what of each
    /// follows it.
    fn encode_after(&self, prompt: &Prompt, suffixes: &[String]) -> Result<PartedPrompt, EncodeError> {
        let Open { before: mut prefix, source, text, spaces } = self.open(prompt, suffixes)?;
        let Some(text) = text else {
            let sequences =
                suffixes.iter().map(|suffix| self.tokenizer.encode_following(suffix)).collect::<Result<_, _>>()?;
            return Ok(PartedPrompt { prefix, source, is_whole: true, suffixes: sequences });
        };
        let suffixes: Vec<String> = suffixes.iter().map(|suffix| format!("{spaces}{suffix}")).collect();
        // As one string each: a label tokenized by itself may be a token that the model would never write here.
        let encoded = self.tokenizer.encode_joint(&text, &suffixes)?;
        // Over all variants and the prompt alone, so that all labels are conditioned on the same tokens.
        let common =
            encoded.with_suffix.iter().map(|joint| common_len(&encoded.own, joint)).min().unwrap_or(encoded.own.len());
        prefix.extend(encoded.shared);
        prefix.extend(&encoded.own[..common]);
        let sequences = encoded.with_suffix.into_iter().map(|mut joint| joint.split_off(common)).collect();
        Ok(PartedPrompt { prefix, source, is_whole: common == encoded.own.len(), suffixes: sequences })
    }

    /// What plain text begins with; a chat's template writes the token itself.
    fn text_start(&self) -> Vec<u32> {
        self.tokenizer.bos().filter(|_| self.tokenizer.adds_bos()).into_iter().collect()
    }

    /// The prompt up to where its last text begins; `suffixes` are what may follow that.
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
            Prompt::Chat { messages, answer_prefix } => {
                let template = self.chat.as_ref().map_err(ChatError::clone)?;
                let (prefix, spaces) = split_trailing_spaces(answer_prefix);
                let others: Vec<&str> =
                    [answer_prefix.as_str()].into_iter().chain(suffixes.iter().map(String::as_str)).collect();
                let mut text = self.marked_chat(template, messages, &others, true)?;
                // From the user, not from data: it may hold tokens that steer (`<|channel|>final<|message|>`).
                text.text.push_str(prefix);
                let text = Some(text);
                Ok(Open { before: Vec::new(), source: 0, text, spaces: spaces.to_owned() })
            }
        }
    }

    /// The same for an encoder-decoder, whose last text is what the answer begins with.
    fn open_answer(&self, prompt: &Prompt, start: &[u32], suffixes: &[String]) -> Result<Open, EncodeError> {
        let after = |source: Vec<u32>, answer: &[u32]| (source.len(), [&source, answer].concat());
        let ((source, before), text) = match prompt {
            Prompt::Tokens(ids) => (after(self.known(ids)?, start), Some("")),
            Prompt::Pair { answer, .. } if answer.is_empty() => return Err(EncodeError::NoStart),
            Prompt::Pair { source, answer } => (after(self.known(source)?, &self.known(answer)?), None),
            Prompt::Text(text) => (after(self.tokenizer.encode_whole(text)?, start), Some("")),
            Prompt::Chat { messages, answer_prefix } => {
                let contents: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
                (after(self.tokenizer.encode_whole(&contents.join("\n"))?, start), Some(answer_prefix.as_str()))
            }
        };
        let (body, spaces) = split_trailing_spaces(text.unwrap_or_default());
        // The answer's prefix is the user's, and what follows it may be data.
        let sentinel = if body.is_empty() {
            None
        } else {
            Some(Tokenizer::sentinel(&suffixes.iter().map(String::as_str).chain([body]))?)
        };
        let text = text.map(|_| Marked { text: body.to_owned(), sentinel });
        Ok(Open { before, source, text, spaces: spaces.to_owned() })
    }

    /// Token ids, refused where the vocabulary does not have one.
    pub(crate) fn known(&self, ids: &[u32]) -> Result<Vec<u32>, EncodeError> {
        let vocab_size = self.tokenizer.vocab_size();
        match ids.iter().find(|&&id| id as usize >= vocab_size) {
            Some(&id) => Err(EncodeError::UnknownToken { id, vocab_size }),
            None => Ok(ids.to_vec()),
        }
    }

    /// The marks that the chat template puts around messages (`<|im_start|>`) and that are no tokens of the vocabulary:
    /// the model is shown their letters.
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

    /// A question and its answer in the chat template.
    fn rendered_turns(&self) -> Option<String> {
        self.chat()?.render_contents([("user", "question"), ("assistant", ANSWER)].into_iter(), false).ok()
    }

    /// What the template puts first of all special tokens after an assistant's message.
    fn find_end_of_turn(&self) -> Option<u32> {
        let rendered = self.rendered_turns()?;
        // From the end: a template may well say `answer` in what it puts before the messages.
        let after = &rendered[rendered.rfind(ANSWER)? + ANSWER.len()..];
        let ids = self.tokenizer.encode_trusted(after).ok()?;
        ids.into_iter().find(|&id| self.tokenizer.is_special(id))
    }
}

fn split_trailing_spaces(text: &str) -> (&str, &str) {
    // Vocabularies write a space together with the word behind it: alone at a prompt's end it is another token.
    text.split_at(text.trim_end_matches(' ').len())
}

fn common_len(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}
