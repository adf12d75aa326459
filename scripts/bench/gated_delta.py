#!/usr/bin/env python3
"""Measures a model with gated delta nets of Qwen3.5-0.8B's shape beside llama.cpp, in alternating rounds.

    cargo build --release --locked -p probity-runtime --examples
    scripts/bench/gated_delta.py --vocabulary ggml-vocab-qwen35.gguf --llama FOLDER

The weights are random and seeded, in Q8_0; the speed of a dense model does not depend on them. Prefill is of 512 tokens
and decoding of 128, as in `run`. The vocabulary comes from llama.cpp's `models` folder, which `scripts/get-tokenizers`
fetches; FOLDER is a build of llama-cpp-python (`pip install --target FOLDER`). This Python needs gguf and numpy. Prints
a table with the ratios, medians over the rounds, and the largest difference of the label log-probabilities.
"""

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import gguf
import numpy as np

import rows
import work
from engines import Bench, Command, flags, ours

ROOT = Path(__file__).resolve().parents[2]
SEED = 20261129
HIDDEN, INNER, LAYERS, INTERVAL, CONTEXT = 1024, 3584, 24, 4, 4096
HEADS, KV_HEADS, HEAD_DIM, ROTATED = 8, 2, 256, 64
STATE_HEADS, STATE_DIM, TAPS = 16, 128, 4
STATES = STATE_HEADS * STATE_DIM
LABELS = [32, 33]
"""The tokens `A` and `B` of the vocabulary."""


def shapes(vocab: int) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor by its name in the file."""
    tensors = {"token_embd.weight": (vocab, HIDDEN), "output_norm.weight": (HIDDEN,)}
    recurrent = {
        "attn_qkv.weight": (3 * STATES, HIDDEN),
        "attn_gate.weight": (STATES, HIDDEN),
        "ssm_alpha.weight": (STATE_HEADS, HIDDEN),
        "ssm_beta.weight": (STATE_HEADS, HIDDEN),
        "ssm_conv1d.weight": (3 * STATES, TAPS),
        "ssm_a": (STATE_HEADS,),
        "ssm_dt.bias": (STATE_HEADS,),
        "ssm_norm.weight": (STATE_DIM,),
        "ssm_out.weight": (HIDDEN, STATES),
    }
    attention = {
        "attn_q.weight": (2 * HEADS * HEAD_DIM, HIDDEN),
        "attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_q_norm.weight": (HEAD_DIM,),
        "attn_k_norm.weight": (HEAD_DIM,),
        "attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
    }
    common = {
        "attn_norm.weight": (HIDDEN,),
        "post_attention_norm.weight": (HIDDEN,),
        "ffn_gate.weight": (INNER, HIDDEN),
        "ffn_up.weight": (INNER, HIDDEN),
        "ffn_down.weight": (HIDDEN, INNER),
    }
    for layer in range(LAYERS):
        mixer = attention if layer % INTERVAL == INTERVAL - 1 else recurrent
        tensors |= {f"blk.{layer}.{name}": shape for name, shape in (mixer | common).items()}
    return tensors


def weight(index: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """One tensor of sensible scale, independent of those created before."""
    numbers = np.random.default_rng([SEED, index])
    if name.endswith("ssm_a"):
        return -numbers.uniform(0.5, 8, shape).astype(np.float32)
    if len(shape) == 1:
        return numbers.uniform(0.8, 1.2, shape).astype(np.float32)
    scale = 0.3 if "conv1d" in name else 0.02
    if name.endswith(("ssm_out.weight", "attn_output.weight", "ffn_down.weight")):
        scale /= np.sqrt(2 * LAYERS)
    return numbers.standard_normal(shape, dtype=np.float32) * np.float32(scale)


def copy_vocabulary(writer: gguf.GGUFWriter, vocabulary: Path) -> int:
    """Copies the tokenizer of another file; returns the number of its tokens."""
    fields = gguf.GGUFReader(vocabulary).fields
    for name, field in fields.items():
        if name.startswith("tokenizer."):
            kind = field.types[0]
            writer.add_key_value(name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    return len(fields["tokenizer.ggml.tokens"].data)


def write_model(path: Path, vocabulary: Path) -> None:
    """Writes the model with matrices in Q8_0."""
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "qwen35")
    writer.add_name("benchmark qwen35 0.8B, random weights")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_freq_base(1e7)
    writer.add_rope_dimension_count(ROTATED)
    writer.add_rope_dimension_sections([11, 11, 10, 0])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_ssm_conv_kernel(TAPS)
    writer.add_ssm_state_size(STATE_DIM)
    writer.add_ssm_group_count(STATE_HEADS)
    writer.add_ssm_time_step_rank(STATE_HEADS)
    writer.add_ssm_inner_size(STATES)
    writer.add_uint32("qwen35.full_attention_interval", INTERVAL)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    vocab = copy_vocabulary(writer, vocabulary)
    for index, (name, shape) in enumerate(shapes(vocab).items()):
        values = weight(index, name, shape)
        if len(shape) == 2 and "conv1d" not in name:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(path)


def table(bench: Bench, llama: list[Path], model: str) -> dict[str, rows.Row]:
    """Both rows: engines and the target."""
    numbers = random.Random(rows.PREFILL)
    prompt = {"prompts": [work.tokens(numbers, rows.PREFILL)], "labels": LABELS}
    file = work.write(bench.folder / "work" / f"gated-delta-{rows.PREFILL}.json", prompt)

    def theirs(build: Path, flash: str, count: int, options: dict[str, object]) -> Command:
        settings = {"model": bench.models / model, "threads": bench.threads, "flash": flash, **options}
        arguments = [sys.executable, str(bench.root / "scripts/bench/peer_llama_cpp.py"), *flags(settings)]
        return Command("llama.cpp", f"{build.name} flash {flash}", arguments, count, {"PYTHONPATH": str(build)}, bench.models / model)

    def row(title: str, count: int, **options: object) -> rows.Row:
        ways = {
            "ours": [ours(bench, model, precision, count, **options) for precision in rows.quick_precisions(bench)],
            "llama.cpp": [theirs(build, flash, count, options) for build in llama for flash in ("on", "off")],
        }
        return rows.Row(title, "tokens/s", ways, [rows.Target("llama.cpp", 1.0, 1.3)])

    return {
        "prefill": row(f"prefill {rows.PREFILL}, Q8_0, `fast`", rows.PREFILL, work=file),
        "decode": row(f"decode {rows.DECODE}, Q8_0, batch 1", rows.DECODE, decode=rows.DECODE),
    }


def main() -> None:
    """Measures both rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=Path, required=True, help="GGUF file with the vocabulary of Qwen3.5")
    parser.add_argument("--llama", type=Path, action="append", required=True, help="folder with a build of llama-cpp-python; of several, the fastest is measured")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    bench = Bench(ROOT, Path(sys.executable), options.threads, options.rounds)
    model = "qwen35-q8_0.gguf"
    if not (bench.models / model).exists():
        bench.models.mkdir(parents=True, exist_ok=True)
        write_model(bench.models / model, options.vocabulary)
    for row in table(bench, options.llama, model).values():
        found = rows.measure(bench, row, lambda text: print(text, file=sys.stderr, flush=True))
        for engine, result in found["engines"].items():
            rates = sorted(one["rate"] for one in result["rounds"])
            print(f"{row.title}: {engine} ({result.get('way') or result['error']})", *map(rows.show, rates))
        print(f"  ratio {found['targets'][0]['ratio']}, largest difference {found['agreement']}")


if __name__ == "__main__":
    main()
