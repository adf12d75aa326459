//! A scripted encoder for tests of metrics.

use crate::{
    ClassKind, EncoderConfig, EncoderError, Framing, HiddenStates, MaskedSequence, ModelDescription, Piece, Precision,
    Sink, TextEncoder, TextTokenizer, Usage, check_sequences,
};

type StateScript = Box<dyn Fn(&[u32], usize) -> Vec<f32> + Send + Sync>;
type MaskScript = Box<dyn Fn(&MaskedSequence) -> Vec<u32> + Send + Sync>;

/// A text encoder whose answers are defined by the test. The vocabulary is a list of word pieces, with `##` for
/// continuations. Words are separated by spaces and split greedily from the left, as in `WordPiece`.
pub struct ScriptedEncoder {
    config: EncoderConfig,
    vocabulary: Vec<String>,
    framing: Framing,
    states: StateScript,
    masked: Option<MaskScript>,
}

/// First ids of every scripted vocabulary, in order.
const SPECIAL: [&str; 4] = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"];

impl ScriptedEncoder {
    /// An encoder with `layers` layers. `states` returns the states at a layer for a sequence: `(tokens, hidden_size)`.
    /// The vocabulary comes after `[UNK]`, `[CLS]`, `[SEP]` and `[MASK]`, so its first piece has id 4.
    pub fn new(
        vocabulary: &[&str],
        layers: usize,
        hidden_size: usize,
        states: impl Fn(&[u32], usize) -> Vec<f32> + Send + Sync + 'static,
    ) -> Self {
        let description = ModelDescription {
            name: "scripted".into(),
            adapter: None,
            revision: None,
            architecture: "scripted".into(),
            fingerprint: "0".repeat(64),
            precision: Precision::Exact,
            device: "cpu".into(),
            platform: None,
            through: None,
            weights: "none".into(),
            context_length: Some(512),
            layers: None,
            classes: Vec::new(),
            class_kind: ClassKind::default(),
            has_chat_template: false,
            thinking: None,
            chat: crate::ChatOptions::default(),
        };
        let vocabulary = SPECIAL.iter().chain(vocabulary).map(|&piece| piece.to_owned()).collect();
        let framing = Framing { before: vec![1], after: vec![2], mask: Some(3) };
        let config = EncoderConfig { description, layers, hidden_size };
        Self { config, vocabulary, framing, states: Box::new(states), masked: None }
    }

    /// Sets the context length in tokens.
    #[must_use]
    pub fn with_context_length(mut self, context_length: usize) -> Self {
        self.config.description.context_length = Some(context_length);
        self
    }

    /// Sets the masked predictions: `masked` returns one id per position.
    #[must_use]
    pub fn with_masked(mut self, masked: impl Fn(&MaskedSequence) -> Vec<u32> + Send + Sync + 'static) -> Self {
        self.masked = Some(Box::new(masked));
        self
    }

    fn id(&self, piece: &str) -> Option<u32> {
        self.vocabulary.iter().skip(SPECIAL.len()).position(|p| p == piece).map(|at| (at + SPECIAL.len()) as u32)
    }

    fn word(&self, word: &str) -> Vec<u32> {
        let (mut ids, mut from) = (Vec::new(), 0);
        while from < word.len() {
            let prefix = if from == 0 { "" } else { "##" };
            let mut ends = (from + 1..=word.len()).rev().filter(|&end| word.is_char_boundary(end));
            let longest = ends.find_map(|end| Some((end, self.id(&format!("{prefix}{}", &word[from..end]))?)));
            // As in WordPiece, one missing piece makes the whole word unknown.
            let Some((end, id)) = longest else { return vec![0] };
            ids.push(id);
            from = end;
        }
        ids
    }
}

impl TextTokenizer for ScriptedEncoder {
    fn framing(&self) -> &Framing {
        &self.framing
    }

    fn tokenize(&self, texts: &[&str]) -> Result<Vec<Vec<u32>>, EncoderError> {
        Ok(texts.iter().map(|text| text.split_whitespace().flat_map(|word| self.word(word)).collect()).collect())
    }

    fn piece(&self, id: u32) -> Piece {
        let piece = self.vocabulary.get(id as usize).map_or("", String::as_str);
        let rest = piece.strip_prefix("##");
        Piece { text: rest.unwrap_or(piece).to_owned(), continues_word: rest.is_some() }
    }
}

impl TextEncoder for ScriptedEncoder {
    fn config(&self) -> &EncoderConfig {
        &self.config
    }

    fn tokenizer(&self) -> &dyn TextTokenizer {
        self
    }

    fn hidden_states(
        &self,
        sequences: &[&[u32]],
        layers: &[usize],
        sink: &mut Sink<'_, HiddenStates>,
    ) -> Result<Usage, EncoderError> {
        check_sequences(sequences.iter().copied(), self.config.description.context_length, self.vocabulary.len())?;
        if let Some(&asked) = layers.iter().find(|&&layer| layer > self.config.layers) {
            return Err(EncoderError::Layer {
                asked,
                layers: self.config.layers,
                model: self.config.description.name.clone(),
            });
        }
        let mut usage = Usage::default();
        // Answers in reverse order: a metric that relies on the order of answers fails its tests.
        for (index, ids) in sequences.iter().enumerate().rev() {
            let values = layers.iter().flat_map(|&layer| (self.states)(ids, layer)).collect();
            usage.tokens_computed += ids.len() as u64;
            usage.tokens_unshared += ids.len() as u64;
            sink(index, HiddenStates { values, tokens: ids.len(), hidden_size: self.config.hidden_size })
                .map_err(EncoderError::Sink)?;
        }
        Ok(usage)
    }

    fn predict_masked(
        &self,
        sequences: &[MaskedSequence],
        sink: &mut Sink<'_, Vec<u32>>,
    ) -> Result<Usage, EncoderError> {
        let no_head = || EncoderError::NoMaskedHead { model: self.config.description.name.clone() };
        let masked = self.masked.as_ref().ok_or_else(no_head)?;
        check_sequences(
            sequences.iter().map(|s| s.ids.as_slice()),
            self.config.description.context_length,
            self.vocabulary.len(),
        )?;
        let mut usage = Usage::default();
        for (index, sequence) in sequences.iter().enumerate().rev() {
            usage.tokens_computed += sequence.ids.len() as u64;
            usage.tokens_unshared += sequence.ids.len() as u64;
            sink(index, masked(sequence)).map_err(EncoderError::Sink)?;
        }
        Ok(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoder() -> ScriptedEncoder {
        ScriptedEncoder::new(&["un", "##able", "##ab", "a"], 1, 1, |ids, layer| {
            ids.iter().map(|&id| id as f32 + layer as f32).collect()
        })
    }

    #[test]
    fn words_are_cut_into_the_longest_pieces() {
        let ids = encoder().tokenize(&["a unable", "unabl", "", "[SEP]"]).expect("scripted");
        assert_eq!(ids, [vec![7, 4, 5], vec![0], vec![], vec![0]]);
        assert_eq!(encoder().piece(5), Piece { text: "able".into(), continues_word: true });
    }

    #[test]
    fn states_come_by_layer_and_token() {
        let mut got = Vec::new();
        let take = &mut |index, states: HiddenStates| {
            got.push((index, states.layer(1).to_vec()));
            Ok(())
        };
        encoder().hidden_states(&[&[4, 5], &[6]], &[0, 1], take).expect("scripted");
        assert_eq!(got, [(1, vec![7.0]), (0, vec![5.0, 6.0])]);
        let refused = encoder().hidden_states(&[], &[2], &mut |_, _| Ok(()));
        assert!(matches!(refused, Err(EncoderError::Layer { asked: 2, layers: 1, .. })));
    }
}
