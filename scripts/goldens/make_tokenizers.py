"""Golden token ids of difficult texts: tests/goldens/tokenizers/<name>.json, and the tiny vocabularies that they need.

`ids` encodes the text as ordinary text (without control tokens), `ids_special` with parsed special-token strings, both
without tokens added at the ends; those are in `bos`. With `--node FOLDER` (node_modules with node-llama-cpp) llama.cpp
encodes every GGUF vocabulary too; if its ids differ from the reference, they are added as `llama_cpp` and
`llama_cpp_special`.
"""

import argparse
import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import sentencepiece
from tokenizers import Tokenizer, normalizers
from transformers import LlamaTokenizerFast

import gguf_tokenizer
import tiny_tokenizers
from nasty_texts import TEXTS
from provenance import ROOT, versions, write_json

FOLDER = ROOT / "tokenizers"


def llama_cpp(gguf: Path, node: Path | None) -> list[tuple[list[int], list[int]]] | None:
    """llama.cpp's ids of every text, ordinary and with specials."""
    if node is None:
        return None
    script = node / "llama_cpp_tokenize.mjs"
    shutil.copy(Path(__file__).with_name(script.name), script)
    run = subprocess.run(["node", script, gguf], input=json.dumps(TEXTS), capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def golden(name: str, reference: str, encode, peer=None, *, bos: list[int], files: dict) -> None:
    """`encode(text, special=…)` for every text; `peer` has llama.cpp's ids."""
    texts, differing = [], [0, 0]
    for index, text in enumerate(TEXTS):
        ids, special = encode(text, special=False), encode(text, special=True)
        entry = {"text": text, "ids": ids}
        if special is not None and special != ids:
            entry["ids_special"] = special
        if peer:
            for which, (ours, theirs) in enumerate(zip((ids, special), peer[index])):
                if ours is not None and ours != theirs:
                    entry[("llama_cpp", "llama_cpp_special")[which]] = theirs
                    differing[which] += 1
            if special is None and peer[index][1] != peer[index][0]:
                entry["ids_special"] = peer[index][1]
        texts.append(entry)
    made_with = versions("tokenizers", "transformers", "sentencepiece", "gguf")
    head = {"made_with": made_with, "reference": reference, "files": files, "bos": bos}
    if peer:
        head["special_reference"] = "llama.cpp" if encode(TEXTS[1], special=True) is None else reference
        head["second_reference"] = f"llama.cpp of npm node-llama-cpp; differs on {differing[0]} ordinary, {differing[1]} special texts"
    print(f"{name}: {len(texts)} texts; llama.cpp differs on {differing if peer else 'not asked'}")
    write_json(FOLDER / f"{name}.json", head | {"texts": texts})


def library(tokenizer: Tokenizer, text: str, *, special: bool) -> list[int]:
    """Ids by `tokenizers`."""
    return gguf_tokenizer.encode(tokenizer, text, special=special)


def tiny_byte_level(pre: str, user_defined: list[str], node: Path | None) -> None:
    """Trains, writes as GGUF and as tokenizer.json, encodes."""
    tokenizer = tiny_tokenizers.byte_level(pre, 600, user_defined)
    name = f"tiny-bpe-{pre}"
    tiny_tokenizers.write_folder(tokenizer, FOLDER / name)
    path = FOLDER / f"{name}.gguf"
    tiny_tokenizers.vocabulary_only(path, partial(tiny_tokenizers.add_byte_level, tokenizer=tokenizer, pre=pre), 600)
    again = gguf_tokenizer.read(path)
    assert all(library(again, t, special=s) == library(tokenizer, t, special=s) for t in TEXTS for s in (False, True))
    files = {"gguf": path.name, "tokenizer_json": f"{name}/tokenizer.json"}
    golden(name, "tokenizers", partial(library, tokenizer), llama_cpp(path, node), bos=[], files=files)


def sentencepiece_kind(name: str, model: bytes, path: Path, template: str | None, node: Path | None, files: dict) -> None:
    """A sentencepiece model as GGUF. The library parses no control tokens, so `ids_special` is llama.cpp's."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    add = partial(tiny_tokenizers.add_sentencepiece, model=model, template=template)
    tiny_tokenizers.vocabulary_only(path, add, processor.vocab_size())

    def encode(text: str, *, special: bool) -> list[int] | None:
        return None if special else processor.encode(text)

    golden(name, "sentencepiece", encode, llama_cpp(path, node), bos=[processor.bos_id()], files=files)


def tiny_sentencepiece(node: Path | None) -> None:
    """The trained model as GGUF, and in the tokenizer.json formats of Mistral and Llama 2."""
    model = tiny_tokenizers.sentencepiece_model()
    name = "tiny-spm"
    files = {"gguf": f"{name}.gguf"}
    sentencepiece_kind(name, model, FOLDER / f"{name}.gguf", tiny_tokenizers.SPM_TEMPLATE, node, files)
    folder = FOLDER / "tiny-spm-json"
    folder.mkdir(exist_ok=True)
    (folder / "spiece.model").write_bytes(model)
    fast = LlamaTokenizerFast(vocab_file=str(folder / "spiece.model"), from_slow=True, legacy=True, add_bos_token=True)
    (folder / "spiece.model").unlink()
    backend = fast.backend_tokenizer
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = None
    backend.add_special_tokens(["<|turn|>"])
    backend.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}
    config |= {"chat_template": tiny_tokenizers.SPM_TEMPLATE, "legacy": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    files = {"tokenizer_json": "tiny-spm-json/tokenizer.json"}
    golden("tiny-spm-json", "tokenizers", partial(library, backend), bos=[1], files=files)


def main() -> None:
    """Always writes the tiny ones, the others if their files are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smollm2", type=Path, help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--qwen", type=Path, help="a Qwen2.5 gguf")
    parser.add_argument("--tokenizers", type=Path, help="folder with mistral-v0.1/, llama3/ and mistral-spm/")
    parser.add_argument("--node", type=Path, help="folder whose node_modules holds node-llama-cpp")
    arguments = parser.parse_args()
    node = arguments.node
    os.makedirs(FOLDER, exist_ok=True)
    tiny_byte_level("smollm", [], node)
    tiny_byte_level("qwen2", ["<judge>"], node)
    tiny_sentencepiece(node)
    for name, path in (("smollm2", arguments.smollm2), ("qwen2.5", arguments.qwen)):
        if path:
            reference = "tokenizers, with the vocabulary and merges of the GGUF and the published pre-tokenizer"
            encode = partial(library, gguf_tokenizer.read(path))
            golden(name, reference, encode, llama_cpp(path, node), bos=[], files={"gguf": path.name})
    if arguments.tokenizers:
        for name, bos in (("mistral-v0.1", [1]), ("llama3", [128000])):
            tokenizer = Tokenizer.from_file(str(arguments.tokenizers / name / "tokenizer.json"))
            files = {"tokenizer_json": f"{name}/tokenizer.json", "npm": "@lenml/tokenizer-" + ("llama3" if name == "llama3" else "llama2") + "@3.7.2"}
            golden(name, "tokenizers", partial(library, tokenizer), bos=bos, files=files)
        source = "mistral_instruct_tokenizer_240323.model.v3"
        model = (arguments.tokenizers / "mistral-spm" / source).read_bytes()
        files = {"gguf": "mistral-v3-spm.gguf", "sentencepiece": source, "pypi": "mistral-common==1.13.1"}
        sentencepiece_kind("mistral-v3-spm", model, arguments.tokenizers / "mistral-v3-spm.gguf", None, node, files)


if __name__ == "__main__":
    main()
