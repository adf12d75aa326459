"""Creates the benchmark's model: a llama with 0.85 billion seeded random weights, in the format of every engine.

The speed of a dense model does not depend on its weights, so random ones of a sensible scale are used. All formats
contain the same weights, so that the engines' logits can be compared. Existing files are kept, and files are written
atomically.
"""

import argparse
import ctypes
import json
import shutil
from pathlib import Path

import numpy as np

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}
SEED = 20240917
# Our names and llama.cpp's for the file types; all tensors except norms have that type.
QUANTISED = {"bf16": "LLAMA_FTYPE_MOSTLY_BF16", "q8_0": "LLAMA_FTYPE_MOSTLY_Q8_0", "q4_1": "LLAMA_FTYPE_MOSTLY_Q4_1", "q4_k": "LLAMA_FTYPE_MOSTLY_Q4_K_S"}


def shapes() -> dict[str, tuple[int, ...]]:
    """The shape of every tensor by its Hugging Face name."""
    hidden, inner, vocab = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    keys = hidden // CONFIG["num_attention_heads"] * CONFIG["num_key_value_heads"]
    tensors = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        for name, rows in (("q_proj", hidden), ("k_proj", keys), ("v_proj", keys), ("o_proj", hidden)):
            tensors[f"{prefix}.self_attn.{name}.weight"] = (rows, hidden)
        tensors[f"{prefix}.mlp.gate_proj.weight"] = (inner, hidden)
        tensors[f"{prefix}.mlp.up_proj.weight"] = (inner, hidden)
        tensors[f"{prefix}.mlp.down_proj.weight"] = (hidden, inner)
        tensors[f"{prefix}.input_layernorm.weight"] = (hidden,)
        tensors[f"{prefix}.post_attention_layernorm.weight"] = (hidden,)
    return tensors | {"model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}


def weight(index: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """One tensor, independent of those created before. Branches into the residual stream are scaled down, as in GPT-2.
    """
    random = np.random.default_rng([SEED, index])
    if len(shape) == 1:
        return random.uniform(0.8, 1.2, shape).astype(np.float32)
    into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
    scale = 0.02 / np.sqrt(2 * CONFIG["num_hidden_layers"]) if into_residual else 0.02
    values = random.standard_normal(shape, dtype=np.float32)
    values *= np.float32(scale)
    return values


def write_safetensors(folder: Path, dtype: str, tokenizer: Path) -> None:
    """Writes a Hugging Face folder with f32 or bf16 weights."""
    import torch
    from safetensors.torch import save_file

    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    torch_type = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    tensors = {name: torch.from_numpy(weight(i, name, shape)).to(torch_type) for i, (name, shape) in enumerate(shapes().items())}
    save_file(tensors, part / "model.safetensors", metadata={"format": "pt"})
    (part / "config.json").write_text(json.dumps(CONFIG | {"torch_dtype": str(torch_type).removeprefix("torch.")}, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, part / name)
    part.rename(folder)


def rotated_pairs(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key projection in GGUF's order: a head's two halves interleaved."""
    rows, width = values.shape
    return values.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


def write_gguf(path: Path, tokenizer: Path) -> None:
    """Writes the F32 GGUF, from which llama.cpp makes the other types."""
    import gguf

    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "llama")
    heads, kv_heads = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
    writer.add_name("benchmark llama 0.85B, random weights")
    writer.add_context_length(CONFIG["max_position_embeddings"])
    writer.add_embedding_length(CONFIG["hidden_size"])
    writer.add_block_count(CONFIG["num_hidden_layers"])
    writer.add_feed_forward_length(CONFIG["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(CONFIG["hidden_size"] // heads)
    writer.add_rope_freq_base(CONFIG["rope_theta"])
    writer.add_layer_norm_rms_eps(CONFIG["rms_norm_eps"])
    writer.add_vocab_size(CONFIG["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_vocabulary(writer, tokenizer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, CONFIG["num_hidden_layers"])
    tensors = list(shapes().items())
    for name, shape in tensors:
        size = int(np.prod(shape)) * 4
        writer.add_tensor_info(names.get_name(name, try_suffixes=(".weight",)), shape, np.dtype(np.float32), size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for index, (name, shape) in enumerate(tensors):
        values = weight(index, name, shape)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            values = rotated_pairs(values, heads if "q_proj" in name else kv_heads)
        writer.write_tensor_data(np.ascontiguousarray(values))
    writer.close()
    part.rename(path)


def add_vocabulary(writer, tokenizer: Path) -> None:
    """Adds the sentencepiece vocabulary of a `tokenizer.json` with byte fallback. Pieces are in merge order, so a
    piece's score is minus its rank."""
    import gguf

    vocabulary = json.loads((tokenizer / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    pieces = sorted(vocabulary, key=vocabulary.get)
    assert len(pieces) == CONFIG["vocab_size"], f"the tokenizer has {len(pieces)} pieces"
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256
    kinds += [gguf.TokenType.NORMAL] * (len(pieces) - len(kinds))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([piece.encode() for piece in pieces])
    writer.add_token_scores([-float(max(0, index - 259)) for index in range(len(pieces))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


def quantise(source: Path, path: Path, file_type: str) -> None:
    """Converts all matrices to one type with llama.cpp's own quantiser."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, file_type)
    params.pure = True
    params.nthread = 0
    part = path.with_suffix(".part")
    if llama_cpp.llama_model_quantize(str(source).encode(), str(part).encode(), ctypes.byref(params)) != 0:
        raise RuntimeError(f"llama.cpp could not write {path.name}")
    part.rename(path)


def main() -> None:
    """Creates missing files in a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with a llama tokenizer.json of 32,000 pieces")
    arguments = parser.parse_args()
    folder, tokenizer = arguments.folder, arguments.tokenizer
    folder.mkdir(parents=True, exist_ok=True)
    for dtype in ("f32", "bf16"):
        if not (folder / dtype).exists():
            write_safetensors(folder / dtype, dtype, tokenizer)
    whole = folder / "f32.gguf"
    if not whole.exists():
        write_gguf(whole, tokenizer)
    for name, file_type in QUANTISED.items():
        if not (folder / f"{name}.gguf").exists():
            quantise(whole, folder / f"{name}.gguf", file_type)


if __name__ == "__main__":
    main()
