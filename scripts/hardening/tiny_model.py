#!/usr/bin/env python3
"""Writes a tiny model with a real structure: SmolLM2's header, chat template and tokenizer, cut to its first tokens,
and two layers of seeded random weights. It allows thousands of runs in tests of files and processes, where the answers
do not matter.

usage: tiny_model.py SMOLLM2.gguf OUT.gguf
"""

import random
import struct
import sys
from pathlib import Path

TOKENS, LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, CONTEXT, SEED = 2048, 2, 64, 128, 4, 2, 2048, 7
ALIGNMENT = 32
F32, U32, STRING, ARRAY = 6, 4, 8, 9
SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Reader:
    """The header of a GGUF file."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 8
        self.tensors, entries = self.number("Q"), self.number("Q")
        self.metadata = dict(self.entry() for _ in range(entries))

    def number(self, form: str):
        value = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def text(self) -> bytes:
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size : self.at]

    def value(self, kind: int):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            return inner, [self.value(inner) for _ in range(count)]
        return self.number(SIZES[kind])

    def entry(self) -> tuple[str, tuple]:
        name, kind = self.text().decode(), self.number("I")
        return name, (kind, self.value(kind))


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def value(kind: int, of) -> bytes:
    if kind == STRING:
        return text(of)
    if kind == ARRAY:
        inner, items = of
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, item) for item in items)
    return struct.pack("<" + SIZES[kind], of)


def cut(metadata: dict) -> dict:
    """The metadata with sizes of the tiny model, the first tokens, and the merges that produce them."""
    cut = dict(metadata)
    tokens = metadata["tokenizer.ggml.tokens"][1][1][:TOKENS]
    known = set(tokens)
    merges = [merge for merge in metadata["tokenizer.ggml.merges"][1][1] if merge.replace(b" ", b"", 1) in known and all(part in known for part in merge.split(b" ", 1))]
    for name, items in [("tokens", tokens), ("merges", merges), ("token_type", metadata["tokenizer.ggml.token_type"][1][1][:TOKENS])]:
        kind, (inner, _) = metadata[f"tokenizer.ggml.{name}"]
        cut[f"tokenizer.ggml.{name}"] = kind, (inner, items)
    cut.pop("tokenizer.ggml.scores", None)
    sizes = {
        "block_count": LAYERS, "embedding_length": HIDDEN, "feed_forward_length": INNER, "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS, "context_length": CONTEXT, "rope.dimension_count": HIDDEN // HEADS, "vocab_size": TOKENS,
    }
    for name, size in sizes.items():
        if f"llama.{name}" in cut:
            cut[f"llama.{name}"] = U32, size
    cut["general.file_type"] = U32, 0
    cut.pop("general.quantization_version", None)
    return cut


def shapes() -> dict[str, list[int]]:
    """Tensors by name, each with its rows last, as in GGUF."""
    kv = HIDDEN // HEADS * KV_HEADS
    found = {"token_embd.weight": [HIDDEN, TOKENS], "output_norm.weight": [HIDDEN]}
    for layer in range(LAYERS):
        sizes = {
            "attn_norm": [HIDDEN], "attn_q": [HIDDEN, HIDDEN], "attn_k": [HIDDEN, kv], "attn_v": [HIDDEN, kv], "attn_output": [HIDDEN, HIDDEN],
            "ffn_norm": [HIDDEN], "ffn_gate": [HIDDEN, INNER], "ffn_up": [HIDDEN, INNER], "ffn_down": [INNER, HIDDEN],
        }
        found.update({f"blk.{layer}.{name}.weight": size for name, size in sizes.items()})
    return found


def make(source: Path) -> bytes:
    """Writes the tiny model; the result depends only on the source."""
    reader = Reader(source.read_bytes())
    metadata = cut(reader.metadata)
    drawn = random.Random(SEED)
    infos, blocks, offset = b"", [], 0
    for name, shape in shapes().items():
        count = 1
        for size in shape:
            count *= size
        # Norms near one; other weights such that activations keep their size.
        centre, width = (1.0, 0.1) if len(shape) == 1 else (0.0, 2.0 / shape[0] ** 0.5)
        block = struct.pack(f"<{count}f", *(centre + width * drawn.gauss(0.0, 1.0) for _ in range(count)))
        block += bytes(-len(block) % ALIGNMENT)
        infos += text(name.encode()) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", size) for size in shape) + struct.pack("<IQ", 0, offset)
        blocks.append(block)
        offset += len(block)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(blocks), len(metadata))
    head += b"".join(text(name.encode()) + struct.pack("<I", kind) + value(kind, of) for name, (kind, of) in metadata.items())
    head += infos
    return head + bytes(-len(head) % ALIGNMENT) + b"".join(blocks)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Path(sys.argv[2]).write_bytes(make(Path(sys.argv[1])))
