"""Seeded tiny encoder-decoders and encoders with outputs of transformers (fp32, eager attention):
tests/goldens/models/<name>/.

Each folder is a normal Hugging Face checkpoint without a tokenizer, plus `golden.safetensors`. Texts are token ids, one
short and one long enough to reach distant positions. Values are computed from the saved files, and cross-checked
against float64 and, for decoders, against a computation token by token with a cache.

With `--minilm FOLDER` also tests/goldens/minilm.json: embeddings of sentences by the published all-MiniLM-L6-v2.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)

from provenance import ROOT, metadata, versions, write_json

VOCAB = 96
TOLERANCE = 2e-4
T5 = {
    "vocab_size": VOCAB,
    "d_model": 32,
    "d_kv": 12,
    "d_ff": 64,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
BERT = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 200,
}
BART = {
    "vocab_size": VOCAB,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 80,
    "max_position_embeddings": 200,
    "scale_embedding": True,
}
DISTILBERT = {
    "vocab_size": VOCAB,
    "dim": 32,
    "hidden_dim": 80,
    "n_layers": 2,
    "n_heads": 4,
    "max_position_embeddings": 200,
}
# Every third layer is global; the others see 12 positions to either side.
MODERNBERT = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 200,
    "local_attention": 24,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
# Like the published version 3, but smaller. Distances of up to 8 have their own buckets.
DEBERTA = BERT | {
    "type_vocab_size": 0,
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 16,
    "max_relative_positions": -1,
    "position_biased_input": False,
}
# All options set differently: separate projections for positions, a table without buckets or norm that ends before the
# text does.
DEBERTA_OWN = BERT | {
    "type_vocab_size": 2,
    "relative_attention": True,
    "pos_att_type": "c2p|p2c",
    "max_relative_positions": 60,
    "hidden_act": "gelu_new",
    "legacy": False,
    # With tied embeddings transformers replaces this head's dense product by the embedding, and fails.
    "tie_word_embeddings": False,
}

# name: (model class, configuration, dtype on disk)
SEQ2SEQ = {
    "t5": (T5ForConditionalGeneration, T5Config(**T5), torch.float32),
    "flan-t5": (
        T5ForConditionalGeneration,
        T5Config(**T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
        torch.bfloat16,
    ),
    "bart": (BartForConditionalGeneration, BartConfig(**BART), torch.float32),
}
MASKED = {
    "bert": (BertForMaskedLM, BertConfig(**BERT), torch.float32),
    "roberta": (RobertaForMaskedLM, RobertaConfig(**BERT | {"type_vocab_size": 1, "layer_norm_eps": 1e-5}), torch.float16),
    "distilbert": (DistilBertForMaskedLM, DistilBertConfig(**DISTILBERT), torch.float32),
    "modernbert": (ModernBertForMaskedLM, ModernBertConfig(**MODERNBERT), torch.float32),
    "modernbert-biases": (
        ModernBertForMaskedLM,
        ModernBertConfig(
            **MODERNBERT | {"num_hidden_layers": 3, "global_attn_every_n_layers": 2, "local_attention": 41, "local_rope_theta": None},
            norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True, decoder_bias=False, tie_word_embeddings=False,
            hidden_activation="silu", classifier_activation="relu",
        ),
        torch.float16,
    ),
    "deberta-v2": (DebertaV2ForMaskedLM, DebertaV2Config(**DEBERTA), torch.float32),
    "deberta-v2-own": (DebertaV2ForMaskedLM, DebertaV2Config(**DEBERTA_OWN), torch.float16),
}
# Lengths of the sources and of the decoder's texts, or of the encoder's texts.
SOURCES, TARGETS = (150, 9), (140, 30)
TEXTS = (170, 11)


def seed_weights(model: torch.nn.Module, seed: int) -> None:
    """Random weights far from initialisation: peaked attention, varied logits, and relevant norms, biases and
    positions."""
    generator = torch.Generator().manual_seed(seed)
    # T5's scores are not scaled.
    unscaled = model.config.model_type == "t5"
    for name, parameter in sorted(model.named_parameters()):
        values = torch.randn(parameter.shape, generator=generator)
        if "norm" in name.lower() and name.endswith("weight"):
            # A tied T5 scales its last hidden states down before the embedding.
            values = (3.0 if name == "decoder.final_layer_norm.weight" else 1.0) * (1.0 + 0.3 * values)
        elif name.endswith("bias"):
            values = 0.3 * values
        elif "relative_attention_bias" in name:
            values = 1.5 * values
        elif "embed" in name or "shared" in name:
            values = (0.5 if model.config.is_encoder_decoder else 0.3) * values
        else:
            query = any(key in name for key in (".q.", "query", "q_lin", "q_proj"))
            gain = 1.6 * (model.config.d_kv**-0.5 if unscaled and query else 1.0) if query else 1.0
            # Its scores are sums of three products, divided by another √3.
            gain *= 3.0**0.5 if query and model.config.model_type == "deberta-v2" else 1.0
            values = values * gain / parameter.shape[1] ** 0.5
        with torch.no_grad():
            parameter.copy_(values)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape, generator=generator))


def save(name: str, entry: tuple, seed: int) -> None:
    """Writes the checkpoint; `bert` with the original names of its norms."""
    cls, config, dtype = entry
    folder = ROOT / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    model = cls(config)
    seed_weights(model, seed)
    model.to(dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    written = json.loads((folder / "config.json").read_text())
    written["torch_dtype"] = written.pop("dtype")
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    if name == "bert":
        file = folder / "model.safetensors"
        old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        tensors = {}
        for key, tensor in load_file(file).items():
            for new_name, old_name in old.items():
                key = key.replace(new_name, old_name)
            tensors[key] = tensor
        save_file(tensors, file, metadata={"format": "pt"})


def load(auto: type, name: str, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """The saved checkpoint, widened."""
    return auto.from_pretrained(ROOT / "models" / name, dtype=dtype, attn_implementation="eager").eval()


def decode(model: torch.nn.Module, source: torch.Tensor, tokens: torch.Tensor, chunk: int | None = None) -> torch.Tensor:
    """Logits at all positions of the decoder's text, in one pass or `chunk` tokens at a time with a cache."""
    with torch.no_grad():
        encoded = model.get_encoder()(source[None])
        if chunk is None:
            return model(encoder_outputs=encoded, decoder_input_ids=tokens[None], use_cache=False).logits[0]
        rows, past = [], None
        for part in tokens.split(chunk):
            out = model(encoder_outputs=encoded, decoder_input_ids=part[None], past_key_values=past, use_cache=True)
            past = out.past_key_values
            rows.append(out.logits[0])
        return torch.cat(rows)


def varied(logits: torch.Tensor, name: str) -> None:
    """Rejects logits that are so similar that errors would go unnoticed."""
    top = logits.softmax(-1).amax(-1)
    print(f"  logits std {logits.std():.2f}; top-1 probability {top.min():.2f} … {top.median():.2f} … {top.max():.2f}")
    assert top.max() - top.min() > 0.15 and top.median() < 0.9, f"{name}: logits too uniform"


def seq2seq(name: str, seed: int) -> None:
    """`source{k}`, `tokens{k}` and `logits{k}` (tokens, vocab); the first token is the decoder's start token."""
    generator = torch.Generator().manual_seed(1000 + seed)
    model, wide = load(AutoModelForSeq2SeqLM, name), load(AutoModelForSeq2SeqLM, name, torch.float64)
    tensors = {}
    for k, (source_len, target_len) in enumerate(zip(SOURCES, TARGETS)):
        source = torch.randint(3, VOCAB, (source_len,), generator=generator)
        tokens = torch.randint(3, VOCAB, (target_len,), generator=generator)
        tokens[0] = model.config.decoder_start_token_id
        logits = decode(model, source, tokens)
        others = [decode(model, source, tokens, 1), decode(model, source, tokens, 7), decode(wide, source, tokens)]
        gaps = [float((other - logits).abs().max()) for other in others]
        print(f"{name} {k}: cached {gaps[0]:.1e}, chunks of 7 {gaps[1]:.1e}, against float64 {gaps[2]:.1e}")
        assert max(gaps) <= 5e-5, gaps
        varied(logits, name)
        tensors |= {f"source{k}": source, f"tokens{k}": tokens, f"logits{k}": logits.contiguous()}
    record = metadata(TOLERANCE, seed, "torch", "transformers", "safetensors")
    save_file(tensors, ROOT / "models" / name / "golden.safetensors", metadata=record)


def masked(name: str, seed: int) -> None:
    """`tokens{k}`, `hidden{k}` (layers + 1, tokens, hidden) including the embeddings, `logits{k}` (tokens, vocab) of
    the masked-language head."""
    generator = torch.Generator().manual_seed(1000 + seed)
    model, wide = load(AutoModelForMaskedLM, name), load(AutoModelForMaskedLM, name, torch.float64)
    tensors = {}
    for k, length in enumerate(TEXTS):
        tokens = torch.randint(3, VOCAB, (length,), generator=generator)
        with torch.no_grad():
            out = model(tokens[None], output_hidden_states=True)
            exact = wide(tokens[None]).logits[0]
        gap = float((out.logits[0] - exact).abs().max())
        print(f"{name} {k}: against float64 {gap:.1e}")
        assert gap <= 5e-5, gap
        varied(out.logits[0], name)
        hidden = torch.cat(out.hidden_states)
        tensors |= {f"tokens{k}": tokens, f"hidden{k}": hidden.contiguous(), f"logits{k}": out.logits[0].contiguous()}
    record = metadata(TOLERANCE, seed, "torch", "transformers", "safetensors")
    save_file(tensors, ROOT / "models" / name / "golden.safetensors", metadata=record)


SENTENCES = [
    "The cat sat on the mat.",
    "A cat is sitting on a mat.",
    "Stock prices fell sharply on Monday after the central bank raised its rate.",
    "She bought three apples, two pears and a loaf of bread.",
    "He didn't go to school because he was ill.",
    "Il fait beau aujourd'hui, n'est-ce pas?",
    "x = (a + b) * 2  # twice the sum",
    "one",
    "The quick brown fox jumps over the lazy dog; the dog, unimpressed, goes back to sleep in the warm afternoon sun.",
    "Sätze mit Umlauten: über, schön, Größe.",
]


def minilm(folder: Path) -> None:
    """Mean-pooled embeddings: the first 16 elements of the normalised vector, and its original length."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    rows = []
    for text in SENTENCES:
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            mean = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
        norm = float(mean.norm())
        first = [round(float(x), 8) for x in mean[:16] / norm]
        rows.append({"text": text, "ids": ids, "norm": round(norm, 7), "embedding": first})
    record = {"made_with": versions("torch", "transformers", "tokenizers"), "max_abs_difference": 1e-5, "sentences": rows}
    write_json(ROOT / "minilm.json", record)


def main() -> None:
    """Writes all or the given tiny checkpoints, and the published encoder's embeddings if its folder is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*SEQ2SEQ, *MASKED], metavar="NAME")
    parser.add_argument("--minilm", type=Path, help="folder of all-MiniLM-L6-v2")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for kind, seeds, models in ((seq2seq, 100, SEQ2SEQ), (masked, 200, MASKED)):
        for seed, (name, entry) in enumerate(models.items(), start=seeds):
            if name in arguments.names:
                save(name, entry, seed)
                kind(name, seed)
    if arguments.minilm:
        minilm(arguments.minilm)


if __name__ == "__main__":
    main()
