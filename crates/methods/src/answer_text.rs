//! What a parser may read of a generated text. All parsers share one rule: the last verdict outside thoughts, in a text
//! that was not truncated.

use std::borrow::Cow;

use probity_lm::{Finish, GenerateResult, Outcome, without_thoughts};

/// Why a text has no readable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The token limit was reached inside a thought.
    #[error("the text was truncated by the token limit inside a thought")]
    CutThought,
    /// The token limit was reached.
    #[error("the text was truncated by the token limit")]
    Cut,
    /// The model ended its turn inside a thought.
    #[error("the text ends inside a thought")]
    OpenThought,
}

/// The text with each thought replaced by as many spaces, which keeps positions; an error if it has no answer.
pub fn answer_text(text: &str, finish: Option<Finish>) -> Result<Cow<'_, str>, NoAnswer> {
    let is_cut = finish == Some(Finish::Length);
    match without_thoughts(text) {
        Some(rest) if !is_cut => Ok(rest),
        Some(_) => Err(NoAnswer::Cut),
        None if is_cut => Err(NoAnswer::CutThought),
        None => Err(NoAnswer::OpenThought),
    }
}

/// [`answer_text`] of a result that has a text; the error is an outcome.
pub fn answer_of(result: &GenerateResult) -> Result<Cow<'_, str>, Outcome> {
    answer_text(&result.text, result.finish).map_err(|why| Outcome::Unparsed { why: why.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_an_answer_where_it_ended_by_itself_and_outside_a_thought() {
        let read = |text: &'static str, finish| answer_text(text, finish).map(|rest| rest.trim().to_owned());
        assert_eq!(read("<think>A</think> B", Some(Finish::EndOfTurn)).as_deref(), Ok("B"));
        assert_eq!(read("B", None).as_deref(), Ok("B"));
        assert_eq!(read("B", Some(Finish::Length)), Err(NoAnswer::Cut));
        assert_eq!(read("<think>A", Some(Finish::Length)), Err(NoAnswer::CutThought));
        assert_eq!(read("<think>A", Some(Finish::Stop)), Err(NoAnswer::OpenThought));
    }
}
