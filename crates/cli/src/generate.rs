//! `probity generate`: generates texts for a file of requests.

use probity_lm::Usage;

use crate::progress::seconds_text;
use crate::terminal::{counted, thousands};

pub(crate) const LONG_ABOUT: &str = "\
Continue prompts: the raw interface to generation.

Each input line is a JSON object with
  id            a string, unique in the file
  prompt        a text, or
  messages      a chat: [{\"role\": \"user\", \"content\": \"…\"}], formatted by the model's chat template, or
  tokens        token ids, used unchanged
and optionally
  answer_prefix with messages: the beginning of the answer; not part of the text
  max_tokens    maximum number of tokens of the text (256)
  stop          [\"\\n\\n\", \"###\"]: the text ends before the first of these
  temperature   above 0: tokens are sampled; 0, the default: always the most probable token
  top_k, top_p, min_p, seed
                with a temperature above 0: limits of sampling, and the seed of this request (0)
and at most one of
  schema        a JSON schema that the text conforms to
  choice        [\"yes\", \"no\"]: the text is one of these
  regex         a regular expression that matches the whole text

Each answer is a JSON line, in input order: id, outcome, precision and prompt_tokens. If there is a text, the line \
also has text, tokens (its ids) and finish (end_of_turn, stop or length). A text that reaches its limit (length) may \
be only a part of what schema, choice or regex require.

Lines that cannot be used are reported on standard error with file and line. The other lines are answered, and the \
exit code is 2.";

pub(crate) const AFTER_HELP: &str = "\
Example:
  echo '{\"id\": \"1\", \"messages\": [{\"role\": \"user\", \"content\": \"Name a colour.\"}], \"max_tokens\": 20}' |
      probity generate --model smollm2-135m-instruct --input -";

/// The amount and speed of generation, if any.
pub(crate) fn written_text(usage: &Usage, seconds: f64) -> Option<String> {
    let Usage { tokens_generated, tokens_drafted, drafts_accepted, .. } = *usage;
    if tokens_generated == 0 {
        return None;
    }
    let drafts = match tokens_drafted {
        0 => "none drafted".to_owned(),
        drafted => {
            let share = 100.0 * drafts_accepted as f64 / drafted as f64;
            let accepted = thousands(drafts_accepted);
            format!("{accepted} of {} drafted tokens accepted ({share:.0}%)", thousands(drafted))
        }
    };
    let rate = tokens_generated as f64 / seconds;
    let (count, time) = (counted(tokens_generated, "token"), seconds_text(seconds));
    Some(format!("{count} generated in {time}: {rate:.1} tokens/s; {drafts}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_texts_is_told_with_the_share_of_drafts_that_were_right() {
        let usage = Usage { tokens_generated: 1000, tokens_drafted: 400, drafts_accepted: 300, ..Usage::default() };
        let told = written_text(&usage, 4.0).expect("texts were generated");
        assert!(told.contains("250.0 tokens/s") && told.contains("300 of 400 drafted tokens accepted (75%)"), "{told}");
        assert_eq!(written_text(&Usage::default(), 1.0), None);
    }
}
