"""A sentencepiece model as the vocabulary of a GGUF without tensors, for the tests that read it: written by hand or by get-tokenizers.

The same bytes as `make_tokenizers.py` writes, without its goldens and the packages they need. The output's stem becomes the model's name.
"""

import argparse
from functools import partial
from pathlib import Path

import sentencepiece

import tiny_tokenizers


def main() -> None:
    """Reads one file, writes the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="sentencepiece model")
    parser.add_argument("gguf", type=Path, help="file to write")
    arguments = parser.parse_args()
    model = arguments.model.read_bytes()
    size = sentencepiece.SentencePieceProcessor(model_proto=model).vocab_size()
    tiny_tokenizers.vocabulary_only(arguments.gguf, partial(tiny_tokenizers.add_sentencepiece, model=model, template=None), size)


if __name__ == "__main__":
    main()
