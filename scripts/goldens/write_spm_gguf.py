"""Writes a sentencepiece model as the vocabulary of a GGUF without tensors, for tests; also used by get-tokenizers.

The bytes are those of `make_tokenizers.py`, without its goldens and the packages that they need. The output's stem
becomes the model's name.
"""

import argparse
from functools import partial
from pathlib import Path

import sentencepiece

import tiny_tokenizers


def main() -> None:
    """Reads one file and writes the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="sentencepiece model")
    parser.add_argument("gguf", type=Path, help="file to write")
    arguments = parser.parse_args()
    model = arguments.model.read_bytes()
    size = sentencepiece.SentencePieceProcessor(model_proto=model).vocab_size()
    tiny_tokenizers.vocabulary_only(arguments.gguf, partial(tiny_tokenizers.add_sentencepiece, model=model, template=None), size)


if __name__ == "__main__":
    main()
