"""A tiny model in several GGUF files: tests/goldens/models/gguf-split/, after make_tiny_gguf.py gguf-granite.

gguf-py writes the parts as llama.cpp's converter does (`--split-max-tensors`). Metadata, tensors and logits are those of
`gguf-granite`.
"""

import shutil

from gguf import GGUFReader, GGUFValueType, GGUFWriter

from provenance import ROOT

TENSORS = 8


def main() -> None:
    """Writes the parts and a copy of the logits."""
    whole, folder = ROOT / "models" / "gguf-granite", ROOT / "models" / "gguf-split"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    reader = GGUFReader(whole / "model.gguf")
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(folder / "model.gguf", architecture, split_max_tensors=TENSORS)
    for key, field in reader.fields.items():
        if key != "general.architecture" and not key.startswith("GGUF."):
            kind, *inner = field.types
            writer.add_key_value(key, field.contents(), kind, inner[-1] if kind == GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    shutil.copy(whole / "golden.safetensors", folder)
    print(*sorted(path.name for path in folder.iterdir()))


if __name__ == "__main__":
    main()
