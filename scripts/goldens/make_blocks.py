"""Random quantised blocks and their values according to gguf-py: tests/goldens/blocks.safetensors.

For each type `<type>.bytes` (64, bytes of a row) u8 and `<type>.values` (64, 512) f32. Quants, sub-scales and high bits
are random bytes. Only the scales are limited (f16: some zero, negative and subnormal; exponents of MXFP4: all that give
finite values), so that no value is infinite.
"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from safetensors.numpy import save_file

from provenance import ROOT, metadata

ROWS, COLUMNS = 64, 512
TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "MXFP4"]
# Byte offsets of the f16 scales inside a block.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def random_rows(name: str, rows: int, columns: int, generator: np.random.Generator, spread: float = 0.02, odd: bool = True) -> np.ndarray:
    """(rows, bytes of a row) u8; `odd` includes scales that are zero, negative or subnormal."""
    if name == "F16":
        values = (generator.standard_normal((rows, columns)) * 10.0 ** generator.integers(-8, 4, (rows, columns))).astype(np.float16)
        return values.view(np.uint8)
    if name == "BF16":
        values = generator.standard_normal((rows, columns)) * 10.0 ** generator.integers(-30, 30, (rows, columns))
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    blocks = generator.integers(0, 256, (rows * columns // block, size), dtype=np.uint8)
    if name == "MXFP4":
        # Around `spread`, or all exponents up to the largest whose values are finite.
        usual = 127 + int(np.log2(spread)) + generator.integers(-4, 1, len(blocks))
        blocks[:, 0] = generator.integers(0, 253, len(blocks)) if odd else usual
        return blocks.reshape(rows, columns // block * size)
    for offset in SCALES[name]:
        scale = generator.uniform(0.2, 1.0, len(blocks)) * spread
        if odd:
            scale *= generator.choice([1.0, -1.0, 0.0, 1e-5], len(blocks), p=[0.7, 0.2, 0.05, 0.05])
        blocks[:, offset : offset + 2] = scale.astype(np.float16)[:, None].view(np.uint8)
    return blocks.reshape(rows, columns // block * size)


def main() -> None:
    """Writes the file."""
    tensors = {}
    for seed, name in enumerate(TYPES):
        raw = random_rows(name, ROWS, COLUMNS, np.random.default_rng(seed))
        values = dequantize(raw, GGMLQuantizationType[name]).astype(np.float32)
        assert values.shape == (ROWS, COLUMNS) and np.isfinite(values).all() and values.min() < values.max()
        tensors |= {f"{name.lower()}.bytes": np.ascontiguousarray(raw), f"{name.lower()}.values": np.ascontiguousarray(values)}
        print(f"{name}: {raw.shape[1]} bytes a row, values {values.min():.3g} … {values.max():.3g}")
    # Exact: with another order of products and sums, the last bit may differ relative to the block's largest value.
    save_file(tensors, ROOT / "blocks.safetensors", metadata=metadata(0.0, None, "gguf", "numpy"))


if __name__ == "__main__":
    main()
