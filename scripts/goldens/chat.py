"""Reference rendering and encoding of chats with transformers' `apply_chat_template`."""

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

# Replaces `<` in message contents while the template is rendered, so that no content looks like a special token.
GUARD = "\ue000"
EMPTY = Tokenizer(models.BPE()).to_str()


def render(template: str, messages: list[dict], **tokens: str) -> str:
    """The template's text up to the assistant's answer."""
    wrapped = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(EMPTY), chat_template=template, **tokens)
    return wrapped.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def encode(tokenizer: Tokenizer, template: str, messages: list[dict], answer_prefix: str = "", **tokens: str) -> tuple[str, list[int]]:
    """(rendered text, ids): the template's special tokens are special, and everything between two of them is one
    ordinary text."""
    text = render(template, messages, **tokens) + answer_prefix
    guarded = [{**m, "content": m["content"].replace("<", GUARD)} for m in messages]
    pieces = [render(template, guarded, **tokens) + answer_prefix.replace("<", GUARD)]
    specials = {i: t.content for i, t in tokenizer.get_added_tokens_decoder().items() if t.special}
    for special in specials.values():
        pieces = [part for piece in pieces for part in _split(piece, special)]
    known = {content: index for index, content in specials.items()}
    ids: list[int] = []
    for piece in pieces:
        if piece in known:
            ids.append(known[piece])
        else:
            tokenizer.encode_special_tokens = True
            ids += tokenizer.encode(piece.replace(GUARD, "<"), add_special_tokens=False).ids
    if not any(s in m["content"] for m in messages for s in specials.values()):
        tokenizer.encode_special_tokens = False
        assert ids == tokenizer.encode(text, add_special_tokens=False).ids, text
    return text, ids


def _split(text: str, separator: str) -> list[str]:
    parts = [part for piece in text.split(separator) for part in (piece, separator)][:-1]
    return [part for part in parts if part]


