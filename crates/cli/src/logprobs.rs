//! `probity logprobs`: the raw interface to probabilities.

pub(crate) const LONG_ABOUT: &str = "\
Ask for label or token log-probabilities: the raw interface.

Each input line is a JSON object with
  id            a string, unique in the file
  prompt        text, or
  messages      a chat: [{\"role\": \"user\", \"content\": \"…\"}], laid out by the model's own template, or
  tokens        token ids, used as they are
and
  labels        {\"A\": [\"A\", \" A\"], \"B\": [\"B\", \" B\"]}: each label with its surface forms, or
  continuation  a text whose tokens' log-probabilities are wanted, or
  classes       true: what the class head of a reward model or classifier says of the prompt
and, where wanted,
  answer_prefix with messages: what the answer begins with, such as \"Answer:\"
  termination   with labels: \"open\" (the answer starts with the label; the default) or \"end_of_turn\" (the answer \
  is the label)
  layers        with continuation: [20]: behind how many layers the model's state while it reads the text is wanted, \
  from 0, what the first is given, to one less than there are

Each answer is a JSON line, in the order of the input: id, outcome, precision and prompt_tokens; for labels `labels` \
with the log-probability
under the full vocabulary (logprob) and the probability among the labels (prob) of each, and their mass under the full \
vocabulary; for a
continuation logprob, token_logprobs, tokens, token_ids and is_greedy; for layers `states`, each with its layer and the \
mean of the residual stream over the continuation's tokens (values); for classes `classes` with the logit of each, and its \
log-probability (logprob) and probability (prob): among all classes, or by itself where config.json says problem_type \
multi_label_classification; of a reward or a value (regression) the logit alone. Logarithms are natural. A log-probability of \
minus infinity is null.

Lines that cannot be used are told on standard error with file and line, the others are answered, and the exit code is \
then 2.";
