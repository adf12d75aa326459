"""Creates models of common shapes from a seed in seconds, with Python's standard library only.

The speed of a dense model does not depend on its weights. Each weight is (q − 7.5) · 2^e with a random 4-bit q, which
Q4_K, Q8_0 and bf16 represent exactly: files of one shape in different formats are the same model. Tensors are cut from
one pool of random blocks, whose size is a prime larger than any tensor's number of rows, so that no row repeats.

usage: seeded.py SHAPE FORMAT FOLDER [--small]      FORMAT: bf16 (a folder with safetensors), q4_k or q8_0 (a GGUF)
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "hardening"))

from tiny_model import ARRAY, F32, STRING, U32, text, value

SEED, BLOCKS, BLOCK, ALIGNMENT = 48, 131101, 256, 32
# Number of weights up to which one process is as fast as several.
FEW = 10**8
INT32, BOOL = 5, 7
# Exponents of weights: their standard deviation is 4.6 times that power of two.
USUAL, RESIDUAL, QUERY, EMBEDDING = -8, -11, -11, -2
LLAMA = {
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 2, "torch_dtype": "bfloat16",
}
T5 = {
    "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, "layer_norm_epsilon": 1e-6, "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128, "is_encoder_decoder": True, "dropout_rate": 0.0, "torch_dtype": "bfloat16",
}
SHAPES = {
    "llama-8b": LLAMA | {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "rope_theta": 500000.0,
    },
    "mistral-7b": LLAMA | {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768, "rope_theta": 10000.0,
        "sliding_window": 4096,
    },
    "flan-t5-xl": T5 | {"d_model": 2048, "d_ff": 5120, "d_kv": 64, "num_heads": 32, "num_layers": 24, "num_decoder_layers": 24, "vocab_size": 32128},
}
SMALL = {
    "llama-8b": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 32000},
    "mistral-7b": {
        "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 300,
    },
    "flan-t5-xl": {"d_model": 256, "d_ff": 512, "d_kv": 64, "num_heads": 4, "num_layers": 2, "num_decoder_layers": 2},
}
# GGUF's number of a type, bytes of 256 weights.
FORMATS = {"bf16": (30, 512), "q4_k": (12, 144), "q8_0": (8, 272)}


@dataclass
class Tensor:
    """A tensor with its scale and the number of heads whose rows are interleaved in GGUF. Norms have no scale and are
    ones."""

    name: str
    shape: list[int]
    exponent: int | None = USUAL
    gguf: str = ""
    heads: int = 0
    offset: int = field(default=0)

    @property
    def count(self) -> int:
        """The number of weights."""
        return self.shape[0] * (self.shape[1] if len(self.shape) > 1 else 1)


def config(shape: str, small: bool) -> dict:
    """The content of `config.json`."""
    return SHAPES[shape] | (SMALL[shape] if small else {})


def parameters(shape: str, small: bool) -> int:
    """Number of matrix weights without the embeddings: two operations per token each."""
    return sum(t.count for t in tensors(config(shape, small)) if len(t.shape) == 2 and not t.name.startswith(("model.embed", "shared", "lm_head")))


def tensors(of: dict) -> list[Tensor]:
    """All tensors of a model."""
    return list(t5_tensors(of) if of["model_type"] == "t5" else llama_tensors(of))


def llama_tensors(of: dict) -> Iterator[Tensor]:
    """The tensors of a llama or Mistral, with their GGUF names."""
    hidden, inner, vocab, heads, kv = (of[name] for name in ("hidden_size", "intermediate_size", "vocab_size", "num_attention_heads", "num_key_value_heads"))
    keys = hidden // heads * kv
    yield Tensor("model.embed_tokens.weight", [vocab, hidden], USUAL, "token_embd.weight")
    for layer in range(of["num_hidden_layers"]):
        under, there = f"model.layers.{layer}", f"blk.{layer}"
        yield Tensor(f"{under}.input_layernorm.weight", [hidden], None, f"{there}.attn_norm.weight")
        yield Tensor(f"{under}.self_attn.q_proj.weight", [hidden, hidden], USUAL, f"{there}.attn_q.weight", heads)
        yield Tensor(f"{under}.self_attn.k_proj.weight", [keys, hidden], USUAL, f"{there}.attn_k.weight", kv)
        yield Tensor(f"{under}.self_attn.v_proj.weight", [keys, hidden], USUAL, f"{there}.attn_v.weight")
        # Projections into the residual stream are scaled down, as in GPT-2.
        yield Tensor(f"{under}.self_attn.o_proj.weight", [hidden, hidden], RESIDUAL, f"{there}.attn_output.weight")
        yield Tensor(f"{under}.post_attention_layernorm.weight", [hidden], None, f"{there}.ffn_norm.weight")
        yield Tensor(f"{under}.mlp.gate_proj.weight", [inner, hidden], USUAL, f"{there}.ffn_gate.weight")
        yield Tensor(f"{under}.mlp.up_proj.weight", [inner, hidden], USUAL, f"{there}.ffn_up.weight")
        yield Tensor(f"{under}.mlp.down_proj.weight", [hidden, inner], RESIDUAL, f"{there}.ffn_down.weight")
    yield Tensor("model.norm.weight", [hidden], None, "output_norm.weight")
    yield Tensor("lm_head.weight", [vocab, hidden], USUAL, "output.weight")


def t5_tensors(of: dict) -> Iterator[Tensor]:
    """The tensors of a T5, scaled as in its initialisation."""
    hidden, inner, heads, vocab = of["d_model"], of["d_ff"], of["num_heads"], of["vocab_size"]
    wide = heads * of["d_kv"]
    yield Tensor("shared.weight", [vocab, hidden], EMBEDDING)
    for stack, layers in (("encoder", of["num_layers"]), ("decoder", of["num_decoder_layers"])):
        yield Tensor(f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", [of["relative_attention_num_buckets"], heads])
        for layer in range(layers):
            under = f"{stack}.block.{layer}.layer"
            attentions = ["SelfAttention", *(["EncDecAttention"] if stack == "decoder" else [])]
            for place, attention in enumerate(attentions):
                yield Tensor(f"{under}.{place}.{attention}.q.weight", [wide, hidden], QUERY)
                yield Tensor(f"{under}.{place}.{attention}.k.weight", [wide, hidden])
                yield Tensor(f"{under}.{place}.{attention}.v.weight", [wide, hidden])
                yield Tensor(f"{under}.{place}.{attention}.o.weight", [hidden, wide])
                yield Tensor(f"{under}.{place}.layer_norm.weight", [hidden], None)
            place = len(attentions)
            for name in ("wi_0", "wi_1"):
                yield Tensor(f"{under}.{place}.DenseReluDense.{name}.weight", [inner, hidden])
            yield Tensor(f"{under}.{place}.DenseReluDense.wo.weight", [hidden, inner])
            yield Tensor(f"{under}.{place}.layer_norm.weight", [hidden], None)
        yield Tensor(f"{stack}.final_layer_norm.weight", [hidden], None)
    yield Tensor("lm_head.weight", [vocab, hidden])


def in_order(pairs: bytes, of_value: list[bytes]) -> bytes:
    """The 4-bit values in order: for 32 bytes first the lower halves, then the upper ones, as in Q4_K."""
    width = len(of_value[0])
    halves = []
    for shift in (0, 4):
        out = bytearray(len(pairs) * width)
        for at in range(width):
            out[at::width] = pairs.translate(bytes(of_value[byte >> shift & 15][at] for byte in range(256)))
        halves.append(out)
    step = 32 * width
    return b"".join(half[at : at + step] for at in range(0, len(halves[0]), step) for half in halves)


def blocks(pairs: bytes, form: str, exponent: int) -> bytes:
    """The pool in a format; each byte of `pairs` contains two weights."""
    if form == "bf16":
        return in_order(pairs, [struct.pack("<f", (q - 7.5) * 2.0**exponent)[2:] for q in range(16)])
    if form == "q8_0":
        scale = struct.pack("<e", 2.0 ** (exponent - 1))
        quants = in_order(pairs, [struct.pack("b", 2 * q - 15) for q in range(16)])
        return b"".join(scale + quants[at : at + 32] for at in range(0, len(quants), 32))
    # Scales and minimums of all eight sub-blocks, six bits each.
    part = 1 << (exponent + 13)
    low, high = part & 15, part >> 4
    packed = bytes([part | high << 6] * 8 + [low | low << 4] * 4)
    head = struct.pack("<ee", 2.0**-13, 7.5 * 2.0**-13) + packed
    return b"".join(head + pairs[at : at + 128] for at in range(0, len(pairs), 128))


class Pool:
    """Random blocks in a format, for each scale of a model."""

    def __init__(self, form: str, exponents: set[int]) -> None:
        self.size = FORMATS[form][1]
        pairs = random.Random(SEED).randbytes(BLOCKS * 128)
        self.pools = {exponent: memoryview(blocks(pairs, form, exponent)) for exponent in exponents}

    def cut(self, exponent: int, first: int, count: int) -> list[memoryview]:
        """Weights from a block on, wrapping around at the pool's end."""
        pool, at = self.pools[exponent], first % BLOCKS * self.size
        left, pieces = count * self.size // BLOCK, []
        while left:
            pieces.append(pool[at : at + left])
            left, at = left - len(pieces[-1]), 0
        return pieces


def data(pool: Pool, form: str, index: int, tensor: Tensor) -> Iterator[memoryview]:
    """A tensor's bytes."""
    if tensor.exponent is None:
        yield memoryview(struct.pack("<f", 1.0)[2:] * tensor.count if form == "bf16" else struct.pack("<f", 1.0) * tensor.count)
        return
    first = index * 7919
    if form == "bf16" or not tensor.heads:
        yield from pool.cut(tensor.exponent, first, tensor.count)
        return
    # llama.cpp's order: a head's two halves interleaved.
    rows, width = tensor.shape
    half = rows // tensor.heads // 2
    for head in range(tensor.heads):
        for row in range(half):
            for part in range(2):
                yield from pool.cut(tensor.exponent, first + ((head * 2 + part) * half + row) * width // BLOCK, width)


def size_of(form: str, tensor: Tensor) -> int:
    """A tensor's size in bytes."""
    if tensor.exponent is None:
        return tensor.count * (2 if form == "bf16" else 4)
    return tensor.count * FORMATS[form][1] // BLOCK


def write_tensor(work: tuple[Path, int, Tensor]) -> None:
    """Writes one tensor at its offset; the pool is inherited from the parent process."""
    path, index, tensor = work
    with path.open("r+b", buffering=1 << 20) as file:
        file.seek(tensor.offset)
        for piece in data(POOL, FORM, index, tensor):
            file.write(piece)


POOL: Pool
FORM: str


def write(path: Path, form: str, header: bytes, all_tensors: list[Tensor]) -> None:
    """Writes header and tensors with all processors."""
    global POOL, FORM
    POOL, FORM = Pool(form, {t.exponent for t in all_tensors if t.exponent is not None}), form
    path.write_bytes(header)
    for tensor in all_tensors:
        tensor.offset += len(header)
    last = all_tensors[-1]
    os.truncate(path, last.offset + size_of(form, last))
    work = [(path, index, tensor) for index, tensor in enumerate(all_tensors)]
    work.sort(key=lambda item: -item[2].count)
    processes = min(len(os.sched_getaffinity(0)), 16)
    if sum(t.count for t in all_tensors) < FEW:
        for item in work:
            write_tensor(item)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        pool.map(write_tensor, work, chunksize=1)


def tokenizer(of: dict) -> tuple[dict, dict]:
    """A tokenizer of the model's vocabulary size: that of a golden checkpoint, and tokens that occur in no text."""
    source = ROOT / "tests/goldens/models" / ("tiny-flan-t5" if of["model_type"] == "t5" else "llama")
    spec, settings = (json.loads((source / name).read_text(encoding="utf-8")) for name in ("tokenizer.json", "tokenizer_config.json"))
    vocabulary = spec["model"]["vocab"]
    if isinstance(vocabulary, list):
        vocabulary += [["\u2581A", -2.0], ["\u2581B", -2.0]]
        vocabulary += [[f"<unused {index}>", -1000.0] for index in range(len(vocabulary), of["vocab_size"])]
    else:
        vocabulary |= {f"<unused {index}>": index for index in range(len(vocabulary), of["vocab_size"])}
    return spec, settings


def labels(of: dict) -> list[int]:
    """The ids of the answers A and B."""
    vocabulary = tokenizer(of)[0]["model"]["vocab"]
    if isinstance(vocabulary, list):
        pieces = [piece for piece, _ in vocabulary]
        return [pieces.index("\u2581A"), pieces.index("\u2581B")]
    return [vocabulary["A"], vocabulary["B"]]


def write_folder(folder: Path, of: dict, all_tensors: list[Tensor]) -> None:
    """Writes a Hugging Face folder."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(of, indent=1))
    for name, content in zip(("tokenizer.json", "tokenizer_config.json"), tokenizer(of), strict=True):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    listed, end = {"__metadata__": {"format": "pt"}}, 0
    for tensor in all_tensors:
        tensor.offset, size = end, size_of("bf16", tensor)
        listed[tensor.name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [end, end + size]}
        end += size
    header = json.dumps(listed).encode()
    header += b" " * (-len(header) % 8)
    write(folder / "model.safetensors", "bf16", struct.pack("<Q", len(header)) + header, all_tensors)


def write_gguf(path: Path, of: dict, form: str, all_tensors: list[Tensor]) -> None:
    """Writes a GGUF of a llama, all matrices in one type."""
    spec, settings = tokenizer(of)
    vocabulary = sorted(spec["model"]["vocab"], key=spec["model"]["vocab"].get)
    special = {token["content"] for token in spec["added_tokens"]}
    kinds = [3 if token in special else 5 if token.startswith("<unused ") else 1 for token in vocabulary]
    merges = [" ".join(merge).encode() for merge in spec["model"]["merges"]]
    entries = {
        "general.architecture": (STRING, b"llama"),
        "general.name": (STRING, b"seeded"),
        "llama.context_length": (U32, of["max_position_embeddings"]),
        "llama.embedding_length": (U32, of["hidden_size"]),
        "llama.block_count": (U32, of["num_hidden_layers"]),
        "llama.feed_forward_length": (U32, of["intermediate_size"]),
        "llama.attention.head_count": (U32, of["num_attention_heads"]),
        "llama.attention.head_count_kv": (U32, of["num_key_value_heads"]),
        "llama.rope.dimension_count": (U32, of["hidden_size"] // of["num_attention_heads"]),
        "llama.rope.freq_base": (F32, of["rope_theta"]),
        "llama.attention.layer_norm_rms_epsilon": (F32, of["rms_norm_eps"]),
        "llama.vocab_size": (U32, of["vocab_size"]),
        "tokenizer.ggml.model": (STRING, b"gpt2"),
        "tokenizer.ggml.pre": (STRING, b"smollm"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, [token.encode() for token in vocabulary])),
        "tokenizer.ggml.token_type": (ARRAY, (INT32, kinds)),
        "tokenizer.ggml.merges": (ARRAY, (STRING, merges)),
        "tokenizer.ggml.bos_token_id": (U32, of["bos_token_id"]),
        "tokenizer.ggml.eos_token_id": (U32, of["eos_token_id"]),
        "tokenizer.ggml.add_bos_token": (BOOL, False),
        "tokenizer.chat_template": (STRING, settings["chat_template"].encode()),
    }
    header = b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(entries))
    for name, (kind, content) in entries.items():
        header += text(name.encode()) + struct.pack("<I", kind) + value(kind, content)
    end = 0
    for tensor in all_tensors:
        tensor.offset = end
        number = 0 if tensor.exponent is None else FORMATS[form][0]
        sizes = b"".join(struct.pack("<Q", size) for size in reversed(tensor.shape))
        header += text(tensor.gguf.encode()) + struct.pack("<I", len(tensor.shape)) + sizes + struct.pack("<IQ", number, end)
        end += size_of(form, tensor)
        end += -end % ALIGNMENT
    write(path, form, header + bytes(-len(header) % ALIGNMENT), all_tensors)


def make(shape: str, form: str, folder: Path, small: bool) -> Path:
    """Creates a model atomically unless it exists; returns its path."""
    of = config(shape, small)
    path = folder / (f"{shape}-{form}" if form == "bf16" else f"{shape}-{form}.gguf")
    if path.exists():
        return path
    part = path.with_name(f"{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    if form == "bf16":
        write_folder(part, of, tensors(of))
    else:
        write_gguf(part, of, form, tensors(of))
    part.rename(path)
    return path


def main() -> None:
    """Creates a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--small", action="store_true", help="the same with few and narrow layers")
    options = parser.parse_args()
    print(make(options.shape, options.format, options.folder, options.small))


if __name__ == "__main__":
    main()
