"""Seeded tiny reward models and classifiers, and the logits of transformers' …ForSequenceClassification:
tests/goldens/classifiers/<name>/.

Each folder is a normal Hugging Face checkpoint with a tokenizer, plus `golden.json`: cases with their input (messages,
or one text), its token ids from the tokenizer (`apply_chat_template`; a pair of texts), and the logits (fp32, eager
attention). With names as arguments, only these are written.
"""

import json
import math
import random
import shutil
import sys
from collections import Counter

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModelForSequenceClassification,
    BartConfig,
    BartForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Gemma2Config,
    Gemma2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    T5Config,
    T5ForSequenceClassification,
)

import make_encoder_models
import make_tiny_models
import tiny_tokenizers
from make_masked_model import sentences, train_tokenizer
from provenance import ROOT, versions, write_json

TOLERANCE = 2e-4
VOCAB = make_tiny_models.VOCAB
SHAPE = make_tiny_models.SHAPE | {"num_hidden_layers": 2, "pad_token_id": 0}
GEMMA = make_tiny_models.GEMMA | {"num_hidden_layers": 2, "final_logit_softcapping": 2.0}
BERT = make_encoder_models.BERT | {"max_position_embeddings": 128}
MODERNBERT = make_encoder_models.MODERNBERT | {"max_position_embeddings": 128, "vocab_size": VOCAB}
DEBERTA = make_encoder_models.DEBERTA | {"max_position_embeddings": 128, "vocab_size": 220}
BART = make_encoder_models.BART | {"max_position_embeddings": 128, "vocab_size": VOCAB}
T5 = make_encoder_models.T5 | {"vocab_size": 220, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
ENTAILMENT = {0: "contradiction", 1: "neutral", 2: "entailment"}
REWARD = {0: "LABEL_0"}


def labels(names: dict[int, str]) -> dict:
    return {"id2label": names, "label2id": {name: number for number, name in names.items()}}


# name: (model class, configuration, dtype on disk)
MODELS = {
    "llama-reward": (LlamaForSequenceClassification, LlamaConfig(**SHAPE, **labels(REWARD)), torch.bfloat16),
    "qwen3-reward": (Qwen3ForSequenceClassification, Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True, **labels(REWARD)), torch.float32),
    # The cap of logits belongs to the language model: it must not apply to a reward.
    "gemma2-reward": (Gemma2ForSequenceClassification, Gemma2Config(**GEMMA, **labels(REWARD)), torch.float32),
    "bert-nli": (BertForSequenceClassification, BertConfig(**BERT | {"vocab_size": 260}, **labels(ENTAILMENT)), torch.float32),
    "roberta-regression": (
        RobertaForSequenceClassification,
        RobertaConfig(**BERT | {"vocab_size": VOCAB, "type_vocab_size": 1, "layer_norm_eps": 1e-5}, **labels(REWARD)),
        torch.float16,
    ),
    "distilbert-sentiment": (
        DistilBertForSequenceClassification,
        DistilBertConfig(**make_encoder_models.DISTILBERT | {"vocab_size": 260, "max_position_embeddings": 128}, **labels({0: "NEGATIVE", 1: "POSITIVE"})),
        torch.float32,
    ),
    "modernbert-nli": (ModernBertForSequenceClassification, ModernBertConfig(**MODERNBERT, **labels(ENTAILMENT)), torch.float32),
    "modernbert-mean": (
        ModernBertForSequenceClassification,
        ModernBertConfig(**MODERNBERT, classifier_pooling="mean", classifier_bias=True, classifier_activation="relu", **labels(REWARD)),
        torch.float16,
    ),
    "deberta-nli": (DebertaV2ForSequenceClassification, DebertaV2Config(**DEBERTA, **labels(ENTAILMENT)), torch.float32),
    "deberta-c2p": (
        DebertaV2ForSequenceClassification,
        DebertaV2Config(**DEBERTA | {"pos_att_type": ["c2p"], "share_att_key": False, "pooler_hidden_act": "tanh"}, **labels(REWARD)),
        torch.float16,
    ),
    "bart-nli": (BartForSequenceClassification, BartConfig(**BART, **labels(ENTAILMENT)), torch.float32),
    "t5-regression": (T5ForSequenceClassification, T5Config(**T5, **labels(REWARD)), torch.bfloat16),
}
QUESTION = "What did the farmer plant behind the house?"
CONVERSATIONS = [
    [("user", QUESTION), ("assistant", "The farmer planted apple trees.")],
    [("user", QUESTION), ("assistant", "Wooden boats, before the winter.")],
    [("user", QUESTION), ("assistant", "I do not know, and it does not matter to me or to my neighbour: trees, fences, letters, windows.")],
    [("system", "Answer in a word."), ("user", "Who?"), ("assistant", "A young doctor"), ("user", "Where?"), ("assistant", "Near the harbour.")],
]
TEXTS = ["The farmer planted apple trees behind the house.", "the"]


def word_pieces() -> Tokenizer:
    tokenizer = train_tokenizer()._tokenizer
    cls, sep = (tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", cls), ("[SEP]", sep)]
    )
    return tokenizer


FRAME = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
ENDS = ["<pad>", "</s>", "<unk>"]


def framed(tokenizer: Tokenizer, kinds: bool) -> Tokenizer:
    """Adds the special tokens for one text and for two, whose second part may have its own type."""
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1" if kinds else "[CLS] $A [SEP] $B [SEP]"
    special = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair=pair, special_tokens=special)
    return tokenizer


def unigram(size: int, special: list[str], unknown: str) -> Tokenizer:
    """DeBERTa's pipeline, similar to T5's, over a small vocabulary: frequent words, their prefixes, and characters. Not
    trained, because the trainer's result differs from run to run."""
    words = Counter("\u2581" + word for text in sentences(random.Random(1), 400) for word in text.removesuffix(".").split())
    pieces = {token: 0.0 for token in special} | {chr(code): -12.0 for code in range(33, 127)} | {"\u2581": -9.0}
    for word, count in sorted(words.items(), key=lambda item: (-item[1], item[0])):
        for piece, score in ((word, math.log(count) - 9.0), (word[:4], -10.0)):
            if len(pieces) < size:
                pieces.setdefault(piece, round(score, 6))
    tokenizer = Tokenizer(models.Unigram(list(pieces.items()), unk_id=special.index(unknown), byte_fallback=False))
    tokenizer.add_special_tokens(special)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer


def tokenizer_of(name: str, folder) -> None:
    if name.endswith("reward"):
        tokenizer = tiny_tokenizers.byte_level("qwen2" if name.startswith("qwen") else "smollm", VOCAB, [])
        tiny_tokenizers.write_folder(tokenizer, folder)
        return
    if name.startswith(("roberta", "bart")):
        tokenizer = tiny_tokenizers.byte_level("smollm", VOCAB, [])
        # Not the second, whose id is that of padding, which has no position.
        first, last = ((text, tokenizer.token_to_id(text)) for text in (tiny_tokenizers.SPECIALS[0], tiny_tokenizers.SPECIALS[2]))
        tokenizer.post_processor = processors.RobertaProcessing(sep=last, cls=first, trim_offsets=False, add_prefix_space=False)
    elif name.startswith("modernbert"):
        tokenizer = framed(tiny_tokenizers.byte_level("smollm", VOCAB, [], FRAME), kinds=False)
    elif name.startswith("deberta"):
        tokenizer = framed(unigram(DEBERTA["vocab_size"], FRAME, "[UNK]"), kinds=True)
    elif name.startswith("t5"):
        tokenizer = unigram(T5["vocab_size"], ENDS, "<unk>")
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    else:
        tokenizer = word_pieces()
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}\n')


def seed_weights(name: str, model: torch.nn.Module, seed: int) -> None:
    (make_tiny_models if name.endswith("reward") else make_encoder_models).seed_weights(model, seed)
    # A few words change the first token's state only slightly.
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if not name.endswith("reward") and any(part in key for part in ("pooler", "classifier", "classification_head")):
                parameter.mul_(4.0)


def save(name: str, seed: int) -> None:
    cls, config, dtype = MODELS[name]
    folder = ROOT / "classifiers" / name
    shutil.rmtree(folder, ignore_errors=True)
    model = cls(config)
    seed_weights(name, model, seed)
    model.to(dtype).save_pretrained(folder)
    tokenizer_of(name, folder)


def asked(name: str, tokenizer: PreTrainedTokenizerFast) -> list[dict]:
    """The input, its ids, and the types of its tokens."""
    cases = []
    for conversation in CONVERSATIONS:
        messages = [{"role": role, "content": content} for role, content in conversation]
        if name.endswith("reward"):
            ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
            cases.append(({"messages": messages}, {"input_ids": ids}))
        else:
            others = "\n".join(message["content"] for message in messages[:-1])
            cases.append(({"messages": messages}, dict(tokenizer(others, messages[-1]["content"]))))
    cases += [({"text": text}, dict(tokenizer(text))) for text in TEXTS]
    if name.startswith(("bart", "t5")):
        # The head reads the last end token, and the encoder also the tokens after it.
        ids = cases[0][1]["input_ids"] + cases[1][1]["input_ids"][1:5]
        cases.append(({"tokens": ids}, {"input_ids": ids}))
    return cases


def golden(name: str) -> None:
    folder = ROOT / "classifiers" / name
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    load = lambda dtype: AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    model, wide = load(torch.float32), load(torch.float64)
    # Roberta and DistilBERT have no token types.
    takes = {"input_ids"} | ({"token_type_ids"} if name.startswith("bert") else set())
    cases = []
    for what, encoded in asked(name, tokenizer):
        inputs = {"attention_mask": torch.ones(1, len(encoded["input_ids"]), dtype=torch.long)} | {key: torch.tensor([value]) for key, value in encoded.items() if key in takes}
        with torch.no_grad():
            logits = model(**inputs).logits[0]
            gap = (wide(**inputs).logits[0] - logits).abs().max()
        assert gap < 5e-5, gap
        cases.append(what | {"ids": inputs["input_ids"][0].tolist(), "logits": logits.tolist()})
    spread = max(case["logits"][0] for case in cases) - min(case["logits"][0] for case in cases)
    print(name, [round(case["logits"][0], 3) for case in cases])
    assert spread > 0.3, "logits too uniform"
    classes = [model.config.id2label[number] for number in sorted(model.config.id2label)]
    made_with = versions("torch", "transformers", "tokenizers", "safetensors")
    write_json(folder / "golden.json", {"made_with": made_with, "max_abs_difference": TOLERANCE, "classes": classes, "cases": cases})


def main() -> None:
    torch.set_num_threads(1)
    for seed, name in enumerate(MODELS):
        if name in (sys.argv[1:] or MODELS):
            save(name, seed)
            golden(name)


if __name__ == "__main__":
    main()
