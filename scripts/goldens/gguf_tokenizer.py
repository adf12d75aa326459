"""Reference byte-level BPE tokenizers: a GGUF's vocabulary in the Hugging Face `tokenizers` library.

The vocabulary, merges and token types come from the file. The pre-tokenizers are those of the models' published
`tokenizer.json`, which a GGUF only names (`tokenizer.ggml.pre`). transformers' own GGUF conversion is not used: it
splits no digits for `smollm` and registers three special tokens for `qwen2`.
"""

from pathlib import Path

from gguf import GGUFReader, TokenType
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def configure(tokenizer: Tokenizer, pre: str) -> None:
    """Sets normaliser, pre-tokenizer and decoder as published by the model family."""
    if pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    elif pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(QWEN2_SPLIT), behavior="isolated", invert=False)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    elif pre == "glm4":
        split = pre_tokenizers.Split(Regex(QWEN2_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")), behavior="isolated", invert=False)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    else:
        raise ValueError(f"no published pre-tokenizer is written down here for {pre!r}")
    tokenizer.decoder = decoders.ByteLevel()


def read(path: Path) -> Tokenizer:
    """The tokenizer of a GGUF of kind `gpt2`. Control tokens are special; user-defined ones are matched in any text, as
    in both libraries."""
    fields = GGUFReader(path).fields
    assert fields["tokenizer.ggml.model"].contents() == "gpt2"
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    configure(tokenizer, fields["tokenizer.ggml.pre"].contents())
    for index, kind in enumerate(fields["tokenizer.ggml.token_type"].contents()):
        added = AddedToken(tokens[index], normalized=False, special=kind == TokenType.CONTROL)
        if kind == TokenType.CONTROL:
            tokenizer.add_special_tokens([added])
        elif kind == TokenType.USER_DEFINED:
            tokenizer.add_tokens([added])
    return tokenizer


def encode(tokenizer: Tokenizer, text: str, *, special: bool) -> list[int]:
    """Ids without added tokens at either end; `special` converts the text of special tokens."""
    tokenizer.encode_special_tokens = not special
    return tokenizer.encode(text, add_special_tokens=False).ids


def template(path: Path) -> str:
    """The chat template of the metadata."""
    return GGUFReader(path).fields["tokenizer.chat_template"].contents()
