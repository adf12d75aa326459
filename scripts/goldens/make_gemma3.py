"""Log-probabilities of Gemma 3 270M (Q4_K_M) on a text longer than its window, by transformers' dequantised load in
fp32 and by llama.cpp (llama-cpp-python 0.3.36, installed beside requirements.txt).

llama.cpp rounds the activations of quantised layers to 8 bits. It therefore also computes a copy of the file with the
dequantised weights in f32, which shows that little else differs (it reads its GELU from a table of 16-bit floats). Ids
are llama.cpp's. Writes tests/goldens/gemma3-270m/golden.safetensors.
"""

import argparse
import ctypes
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from make_generated import TASKS, TEXT
from make_real_logits import logits_of, perplexity, subset_ids
from provenance import ROOT, metadata
from tiny_tokenizers import CORPUS

WINDOW = 512
TOLERANCE = 2e-4


def dequantised(path: Path, to: Path) -> None:
    """Writes the file with all weights in f32."""
    reader = GGUFReader(path)
    writer = GGUFWriter(to, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        writer.add_key_value(name, field.contents(), kind, sub_type=field.types[-1] if kind == GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, np.ascontiguousarray(values), raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    """A file in llama.cpp, with keys and values in f32."""

    def __init__(self, path: Path) -> None:
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def tokens(self, text: str) -> list[int]:
        """Ids with the start token."""
        raw, ids = text.encode(), (llama_cpp.llama_token * (len(text) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, raw, len(raw), ids, len(ids), True, False)
        return list(ids[:count])

    def next_logprobs(self, ids: list[int]) -> torch.Tensor:
        """The log-probability of each token after those before it, (tokens − 1,) f64."""
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = 1024
        params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.swa_full = True
        context = llama_cpp.llama_init_from_model(self.model, params)
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for at, token in enumerate(ids):
            batch.token[at], batch.pos[at], batch.n_seq_id[at], batch.logits[at] = token, at, 1, 1
            batch.seq_id[at][0] = 0
        assert llama_cpp.llama_decode(context, batch) == 0
        size = llama_cpp.llama_vocab_n_tokens(self.vocab)

        def logprob(at: int) -> torch.Tensor:
            pointer = ctypes.cast(llama_cpp.llama_get_logits_ith(context, at), ctypes.POINTER(ctypes.c_float))
            return torch.from_numpy(np.ctypeslib.as_array(pointer, (size,)).copy()).double().log_softmax(-1)[ids[at + 1]]

        return torch.stack([logprob(at) for at in range(len(ids) - 1)])


def by_transformers(path: Path, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities (tokens, 64) of fixed ids and (tokens − 1,) of the next tokens."""
    settings = {"gguf_file": path.name, "dtype": torch.float32, "attn_implementation": "eager"}
    model = AutoModelForCausalLM.from_pretrained(path.parent, **settings).eval()
    config = model.config
    assert (config.sliding_window, config.rope_theta, config.rope_local_base_freq) == (WINDOW, 1e6, 1e4), config
    assert config.query_pre_attn_scalar == config.head_dim == 256 and config.tie_word_embeddings, config
    logits = logits_of(model, ids)
    print(f"{len(ids)} tokens, perplexity {perplexity(logits, ids):.2f}")
    logprobs = logits.double().log_softmax(-1)
    del logits
    for layer in model.model.layers:
        # Without a window, and with the same rotation.
        layer.self_attn.sliding_window, layer.attention_type = None, "full_attention"
    unlimited = next_of(logits_of(model, ids).double().log_softmax(-1), ids)
    moved = (unlimited - next_of(logprobs, ids)).abs()
    print(f"  the window moves log-probabilities by {moved[:WINDOW].max():.1e} before position {WINDOW}, by {moved[WINDOW:].max():.2f} after it")
    assert moved[: WINDOW - 1].max() < 1e-3 and moved[WINDOW:].max() > 0.05
    return logprobs[:, subset_ids(config.vocab_size)], next_of(logprobs, ids)


def next_of(logprobs: torch.Tensor, ids: list[int]) -> torch.Tensor:
    """Log-probabilities of the next tokens."""
    return logprobs[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def main() -> None:
    """Computes, compares and writes the log-probabilities."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gemma3", type=Path, help="gemma-3-270m-q4_k_m.gguf")
    path = parser.parse_args().gemma3
    quantised = LlamaCpp(path)
    ids = quantised.tokens("\n".join([CORPUS, TEXT, *TASKS[5:]]))
    assert WINDOW + 100 < len(ids) <= 1024, len(ids)
    rounded = quantised.next_logprobs(ids)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "f32.gguf"
        dequantised(path, whole)
        unrounded = LlamaCpp(whole).next_logprobs(ids)
    subset, following = by_transformers(path, ids)
    apart = {}
    for name, found in [("f32", unrounded), ("quantised", rounded)]:
        apart[name] = (found - following).abs()
        print(f"llama.cpp with {name} weights: mean difference {apart[name].mean():.1e}, largest {apart[name].max():.1e}")
    assert apart["f32"].mean() < 1e-3 and apart["f32"].mean() * 50 < apart["quantised"].mean(), "something besides quantisation differs"
    tensors = {
        "tokens": torch.tensor(ids),
        "subset_ids": subset_ids(262_144),
        "subset_logprobs": subset.float().contiguous(),
        "next_logprobs": following.float().contiguous(),
        "llama_cpp_next_logprobs": rounded.float().contiguous(),
        "llama_cpp_f32_next_logprobs": unrounded.float().contiguous(),
    }
    folder = ROOT / "gemma3-270m"
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "golden.safetensors", metadata=metadata(TOLERANCE, None, "torch", "transformers", "gguf"))


if __name__ == "__main__":
    main()
