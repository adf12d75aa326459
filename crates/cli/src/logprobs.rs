//! `probity logprobs`: log-probabilities for a file of requests.

pub(crate) const LONG_ABOUT: &str = "\
Compute label or token log-probabilities: the raw interface.

Each input line is a JSON object with
  id            a string, unique in the file
  prompt        a text, or
  messages      a chat: [{\"role\": \"user\", \"content\": \"…\"}], formatted by the model's chat template, or
  tokens        token ids, used unchanged
and
  labels        {\"A\": [\"A\", \" A\"], \"B\": [\"B\", \" B\"]}: each label with its surface forms, or
  continuation  a text, for the log-probabilities of its tokens, or
  classes       true: the output of the class head of a reward model or classifier
and optionally
  answer_prefix with messages: the beginning of the answer, such as \"Answer:\"
  termination   with labels: \"open\" (the answer starts with the label; the default) or \"end_of_turn\" (the answer \
is the label)
  layers        with continuation: [20]: numbers of layers after which the model's state is returned while it reads \
the text, from 0 (the input of the first layer) to one less than the number of layers

Each answer is a JSON line, in input order: id, outcome, precision and prompt_tokens. For labels: `labels`, each with \
its log-probability under the full vocabulary (logprob) and its probability among the labels (prob), and their mass \
under the full vocabulary. For a continuation: logprob, token_logprobs, tokens, token_ids and is_greedy. For layers: \
`states`, each with its layer and the mean of the residual stream over the continuation's tokens (values). For \
classes: `classes`, each with its logit, log-probability (logprob) and probability (prob), among all classes or, if \
config.json has problem_type multi_label_classification, independently; a reward or a value (regression) has only the \
logit. Logarithms are natural. A log-probability of minus infinity is null.

Lines that cannot be used are reported on standard error with file and line. The other lines are answered, and the \
exit code is 2.";
