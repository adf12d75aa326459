//! Loading, tokenizing and scoring: the language-model contract on candle
