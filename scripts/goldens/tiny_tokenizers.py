"""Small tokenizers trained on our own text, so that each kind is tested without a download."""

import io
import json
from pathlib import Path

import sentencepiece
from gguf import GGUFWriter, TokenType
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

import gguf_tokenizer

CORPUS = """\
The judge reads both texts before she writes a word. First she asks whether the answer says what the question wanted; then she asks whether
it is true. A short answer that is right is better than a long answer that wanders. When two answers are equally good, she says so.
Which summary is better, A or B? The better summary is Summary A. The better text is Text B. Answer: A. Answer: B. Answer: Yes. Answer: No.
The score is 7 out of 10. The score is 3 out of 5. In 2019 there were 1,204 entries, in 2020 there were 1,377, and 12.5 % were rejected.
The ferry stopped when the river froze, and it didn't run again until the spring. They're sure it's the coldest winter that they've seen;
we'll see whether they're right. "I'd rather walk," said the miller's daughter, "than wait for a ferry that won't come."
The international committee found the interesting agreement interminable. Interpretation is an interplay of intention and international law.
The candidates compare, the comparison is compared, and the comparisons are counted. Coherence, consistency, fluency and relevance are scored.
    if score > best:
        best = score
        winner = candidate
    return winner, best
def compare(first, second):
    \"\"\"Return the better of two candidates.\"\"\"
    return first if first.score >= second.score else second
for index, value in enumerate(values):
    print(index, value)
Der Fluss war im Dezember zugefroren, und die Fähre fuhr nicht mehr. Le résumé était plus court que l'article. El río se heló en enero.
Река замёрзла в декабре, и паром остановился. 河は十二月に凍った。 🙂 The end.
Paragraphs are separated by empty lines.

Like this one.\tA tab stands here, and  two  spaces  stand  there.
"""
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SPM_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|turn|>' + message['role'] + ': ' + message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn|>assistant:' }}{% endif %}"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level(pre: str, size: int, user_defined: list[str], specials: list[str] = SPECIALS) -> Tokenizer:
    """A byte-level BPE of `size` tokens: the specials first, then bytes, merges, and the user-defined tokens."""
    tokenizer = Tokenizer(models.BPE())
    gguf_tokenizer.configure(tokenizer, pre)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(user_defined), special_tokens=specials, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in user_defined])
    assert tokenizer.get_vocab_size() == size, tokenizer.get_vocab_size()
    return tokenizer


def write_folder(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes it as a Hugging Face checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.encode_special_tokens = False
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIALS[0],
        "eos_token": SPECIALS[2],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def add_byte_level(writer: GGUFWriter, tokenizer: Tokenizer, pre: str) -> None:
    """The metadata of a `gpt2` vocabulary."""
    spec = json.loads(tokenizer.to_str())
    special = {token["id"]: token["special"] for token in spec["added_tokens"]}
    size = tokenizer.get_vocab_size()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([tokenizer.id_to_token(i) for i in range(size)])
    kinds = {None: TokenType.NORMAL, True: TokenType.CONTROL, False: TokenType.USER_DEFINED}
    writer.add_token_types([kinds[special.get(i)] for i in range(size)])
    writer.add_token_merges([" ".join(merge) for merge in spec["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def sentencepiece_model() -> bytes:
    """A sentencepiece BPE with byte fallback, two user-defined symbols and one control symbol."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()),
        model_writer=out,
        model_type="bpe",
        vocab_size=600,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        character_coverage=0.98,
        split_digits=True,
        user_defined_symbols=["<judge>", "::"],
        control_symbols=["<|turn|>"],
        num_threads=1,
        minloglevel=2,
    )
    return out.getvalue()


def add_sentencepiece(writer: GGUFWriter, model: bytes, template: str | None) -> None:
    """The metadata of a `llama` vocabulary."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    tests = [
        (processor.is_byte, TokenType.BYTE),
        (processor.is_control, TokenType.CONTROL),
        (processor.is_unknown, TokenType.UNKNOWN),
        (processor.is_unused, TokenType.UNUSED),
    ]
    user_defined = user_defined_ids(model)
    ids = range(processor.vocab_size())
    kinds = [next((kind for test, kind in tests if test(i)), TokenType.USER_DEFINED if i in user_defined else TokenType.NORMAL) for i in ids]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([processor.id_to_piece(i) for i in ids])
    writer.add_token_scores([processor.get_score(i) for i in ids])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(processor.bos_id())
    writer.add_eos_token_id(processor.eos_id())
    writer.add_unk_token_id(processor.unk_id())
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)
    if template:
        writer.add_chat_template(template)


def user_defined_ids(model: bytes) -> set[int]:
    """Ids of user-defined symbols, which the processor's interface does not provide."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    return {i for i, piece in enumerate(proto.pieces) if piece.type == piece.USER_DEFINED}


def vocabulary_only(path: Path, add, vocab_size: int) -> None:
    """A GGUF without tensors; `add` writes the tokenizer's metadata."""
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_vocab_size(vocab_size)
    writer.add_context_length(256)
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
