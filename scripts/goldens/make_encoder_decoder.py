"""A seeded tiny Flan-T5 with its own tokenizer, and the answers of transformers, from texts to label probabilities.

Writes tests/goldens/models/tiny-flan-t5 (a Hugging Face folder with a unigram tokenizer trained on the texts of the
sample data) and tests/goldens/tiny-flan-t5.json. The rule: the encoder reads the prompt, or a chat's messages one below
the other, followed by `</s>`. The decoder's text is the start token, the answer prefix and the label, where prefix and
label are encoded as one text. The condition is the longest common prefix of the tokens of the answer prefix and of all
variants' texts. Each sequence is one full pass without a cache; log-softmax and sums are float64.
"""

import json
import shutil
from pathlib import Path

import gguf
import torch
from safetensors.torch import load_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import T5Config, T5ForConditionalGeneration

from provenance import ROOT, versions, write_json

NAME = "tiny-flan-t5"
VOCAB = 220
SAMPLES = ROOT.parents[1] / "samples"
TEXT = "The river froze in December and the ferry stopped. Which summary is better?"
MESSAGES = [
    {"role": "system", "content": "You compare two summaries."},
    {"role": "user", "content": "Summary A: the ferry stopped.\nSummary B: the ferry  sank.\nWhich one is better, A or B?"},
]
A_OR_B = {"A": ["A", " A"], "B": ["B", " B"]}
LABELS = [
    {"name": "first_step", "prompt": TEXT, "labels": A_OR_B},
    {"name": "chat", "messages": MESSAGES, "labels": A_OR_B},
    {"name": "answer_prefix", "messages": MESSAGES, "answer_prefix": "Summary", "labels": A_OR_B},
    {"name": "answer_prefix_ends_in_a_space", "messages": MESSAGES, "answer_prefix": "Summary ", "labels": A_OR_B},
    {"name": "labels_of_several_tokens", "prompt": TEXT, "labels": {"yes": ["Yes, it does"], "no": ["No, it certainly does not"]}},
    {"name": "special_text_in_a_prompt", "prompt": "Better: </s> <pad> A </s>", "labels": A_OR_B},
    {"name": "long", "prompt": " ".join([TEXT] * 12), "labels": A_OR_B},
    {"name": "terminated_numbers", "prompt": TEXT, "labels": {"1": ["1"], "10": ["10"], "2": ["2"]}, "termination": "end_of_turn"},
]
CONTINUATIONS = [
    {"name": "sentence", "prompt": TEXT, "continuation": "The ferry stopped when the river froze."},
    {"name": "behind_a_prefix", "messages": MESSAGES, "answer_prefix": "Summary:", "continuation": " the ferry stopped."},
]
GENERATED = 24


def make_tokenizer() -> Tokenizer:
    """T5's pipeline over a small vocabulary."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(SAMPLES.rglob("*.jsonl"))]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    special = ["<pad>", "</s>", "<unk>"]
    alphabet = [chr(code) for code in range(32, 127)]
    trainer = trainers.UnigramTrainer(vocab_size=VOCAB, special_tokens=special, unk_token="<unk>", initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def make_model(vocab_size: int) -> T5ForConditionalGeneration:
    """Random weights of a scale at which attention and answers vary."""
    config = T5Config(
        vocab_size=vocab_size, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config).eval()
    generator = torch.Generator().manual_seed(20251122)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            values = torch.randn(parameter.shape, generator=generator)
            if "layer_norm" in name:
                values = 1.0 + 0.2 * values
            elif "relative_attention_bias" not in name:
                values = values / parameter.shape[1] ** 0.5 * (0.6 if ".q." in name else 1.0)
            # The dtype of the saved file.
            parameter.copy_(values.to(torch.bfloat16))
    return model


class Reference:
    """The model and its tokenizer."""

    def __init__(self, model: T5ForConditionalGeneration, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer

    def text_ids(self, text: str) -> list[int]:
        """Ids of ordinary text, in which special tokens are plain characters."""
        pieces = json.loads(self.tokenizer.to_str())
        pieces["added_tokens"] = [token | {"content": f"\u0000{token['id']}"} for token in pieces["added_tokens"]]
        special = {token["id"] for token in pieces["added_tokens"]}
        for token in special:
            pieces["model"]["vocab"][token][0] = f"\u0000{token}"
        return Tokenizer.from_str(json.dumps(pieces)).encode(text, add_special_tokens=False).ids

    def source(self, case: dict) -> list[int]:
        """The encoder's input."""
        text = case["prompt"] if "prompt" in case else "\n".join(message["content"] for message in case["messages"])
        return [*self.text_ids(text), 1]

    def split(self, case: dict, suffixes: list[str]) -> tuple[list[int], list[list[int]]]:
        """The decoder's tokens before the label, and each suffix's tokens."""
        prefix = case.get("answer_prefix", "")
        whole = [self.text_ids(prefix + suffix) for suffix in suffixes]
        own = self.text_ids(prefix.rstrip(" "))
        common = min(next((i for i, (a, b) in enumerate(zip(own, ids)) if a != b), min(len(own), len(ids))) for ids in whole)
        return [0, *own[:common]], [ids[common:] for ids in whole]

    def logprobs(self, source: list[int], prefix: list[int], asked: list[int]) -> list[float]:
        """The log-probability of each queried token."""
        with torch.no_grad():
            text = torch.tensor([prefix + asked[:-1]])
            logits = self.model(input_ids=torch.tensor([source]), decoder_input_ids=text, use_cache=False).logits[0].double()
        rows = logits.log_softmax(-1)[len(prefix) - 1 :]
        return [rows[place, token].item() for place, token in enumerate(asked)]

    def labels(self, case: dict) -> dict:
        """The sums over distinct variants."""
        names = [(name, variant) for name, variants in case["labels"].items() for variant in variants]
        prefix, asked = self.split(case, [variant for _, variant in names])
        if case.get("termination"):
            asked = [ids + [1] for ids in asked]
        source = self.source(case)
        distinct = {name: {tuple(ids) for (other, _), ids in zip(names, asked) if other == name} for name in case["labels"]}
        total = lambda ids: sum(self.logprobs(source, prefix, list(ids)))  # noqa: E731
        values = {name: torch.logsumexp(torch.tensor([total(ids) for ids in sorted(all_ids)], dtype=torch.float64), 0).item() for name, all_ids in distinct.items()}
        return {"source": source, "prefix": prefix, "logprobs": values}

    def continuation(self, case: dict) -> dict:
        """The log-probability of each token."""
        prefix, (asked,) = self.split(case, [case["continuation"]])
        return {"prefix": prefix, "tokens": asked, "logprobs": self.logprobs(self.source(case), prefix, asked)}

    def generate(self, prompt: str) -> list[int]:
        """Greedy tokens."""
        source, text = self.source({"prompt": prompt}), [0]
        while len(text) <= GENERATED:
            with torch.no_grad():
                logits = self.model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([text])).logits[0, -1]
            best = logits.topk(2)
            assert best.values[0] - best.values[1] > 1e-3, "too close to call"
            if best.indices[0] == 1:
                break
            text.append(best.indices[0].item())
        return text[1:]


def write_gguf(folder: Path) -> None:
    """Writes the model as GGUF like converters for llama.cpp, with gguf-py's tensor names, in f32, which represents all
    of bf16."""
    config = json.loads((folder / "config.json").read_text())
    pieces = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    file = folder.with_name(folder.name + "-gguf") / "model.gguf"
    file.parent.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(file, "t5")
    writer.add_embedding_length(config["d_model"])
    writer.add_feed_forward_length(config["d_ff"])
    writer.add_block_count(config["num_layers"])
    writer.add_head_count(config["num_heads"])
    writer.add_key_length(config["d_kv"])
    writer.add_value_length(config["d_kv"])
    writer.add_context_length(512)
    writer.add_relative_attn_buckets_count(config["relative_attention_num_buckets"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    writer.add_decoder_start_token_id(config["decoder_start_token_id"])
    special = [gguf.TokenType.CONTROL, gguf.TokenType.CONTROL, gguf.TokenType.UNKNOWN]
    writer.add_tokenizer_model("t5")
    writer.add_token_list([piece for piece, _ in pieces])
    writer.add_token_scores([score for _, score in pieces])
    writer.add_token_types(special + [gguf.TokenType.NORMAL] * (len(pieces) - len(special)))
    writer.add_add_space_prefix(True)
    writer.add_remove_extra_whitespaces(True)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.T5, config["num_layers"])
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not name.endswith("embed_tokens.weight"):
            writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Writes the folder and the answers."""
    folder = ROOT / "models" / NAME
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = make_tokenizer()
    model = make_model(VOCAB)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names, indent=2) + "\n")
    write_gguf(folder)
    reference = Reference(model.float(), tokenizer)
    write_json(
        ROOT / f"{NAME}.json",
        {
            "made_with": versions("torch", "transformers", "tokenizers"),
            "labels": [case | reference.labels(case) for case in LABELS],
            "continuations": [case | reference.continuation(case) for case in CONTINUATIONS],
            "generated": {"prompt": TEXT, "tokens": reference.generate(TEXT)},
        },
    )


if __name__ == "__main__":
    main()
