"""Seeded tiny reward models and classifiers, and the logits that transformers' …ForSequenceClassification gives: tests/goldens/classifiers/<name>/.

Each folder is an ordinary Hugging Face checkpoint with a tokenizer, plus `golden.json`: cases with what is asked (messages, or one text),
its token ids by the tokenizer's own means (`apply_chat_template`; a pair of texts), and the logits (fp32, eager attention). Names as
arguments: only these are written.
"""

import json
import shutil
import sys

import torch
from tokenizers import Tokenizer, processors
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Gemma2Config,
    Gemma2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)

import make_encoder_models
import make_tiny_models
import tiny_tokenizers
from make_masked_model import train_tokenizer
from provenance import ROOT, versions, write_json

TOLERANCE = 2e-4
VOCAB = make_tiny_models.VOCAB
SHAPE = make_tiny_models.SHAPE | {"num_hidden_layers": 2, "pad_token_id": 0}
GEMMA = make_tiny_models.GEMMA | {"num_hidden_layers": 2, "final_logit_softcapping": 2.0}
BERT = make_encoder_models.BERT | {"max_position_embeddings": 128}
ENTAILMENT = {0: "contradiction", 1: "neutral", 2: "entailment"}
REWARD = {0: "LABEL_0"}


def labels(names: dict[int, str]) -> dict:
    return {"id2label": names, "label2id": {name: number for number, name in names.items()}}


# name: (model class, configuration, dtype on disk)
MODELS = {
    "llama-reward": (LlamaForSequenceClassification, LlamaConfig(**SHAPE, **labels(REWARD)), torch.bfloat16),
    "qwen3-reward": (Qwen3ForSequenceClassification, Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True, **labels(REWARD)), torch.float32),
    # The cap of logits is a language model's: it must not touch a reward.
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


def tokenizer_of(name: str, folder) -> None:
    if name.endswith("reward"):
        tokenizer = tiny_tokenizers.byte_level("qwen2" if name.startswith("qwen") else "smollm", VOCAB, [])
        tiny_tokenizers.write_folder(tokenizer, folder)
        return
    if name.startswith("roberta"):
        tokenizer = tiny_tokenizers.byte_level("smollm", VOCAB, [])
        # Not the second, whose id is padding's: padding has no position of its own.
        first, last = ((text, tokenizer.token_to_id(text)) for text in (tiny_tokenizers.SPECIALS[0], tiny_tokenizers.SPECIALS[2]))
        tokenizer.post_processor = processors.RobertaProcessing(sep=last, cls=first, trim_offsets=False, add_prefix_space=False)
    else:
        tokenizer = word_pieces()
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}\n')


def seed_weights(name: str, model: torch.nn.Module, seed: int) -> None:
    (make_tiny_models if name.endswith("reward") else make_encoder_models).seed_weights(model, seed)
    # What a few words change in the first token's state is little.
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if not name.endswith("reward") and ("pooler" in key or "classifier" in key):
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
    """What is asked, its ids, and the kinds of its tokens."""
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
    return cases


def golden(name: str) -> None:
    folder = ROOT / "classifiers" / name
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    load = lambda dtype: AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    model, wide = load(torch.float32), load(torch.float64)
    # Roberta's and DistilBERT's know no kinds.
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
