"""Chat templates rendered by transformers: tests/goldens/chat_templates.json.

`expressions` are our own, each with its rendered text, or null if it fails. `templates` are from third parties
(llama.cpp's collection, downloaded by `scripts/get-tokenizers`), with only the hashes of their renderings.
"""

import argparse
import hashlib
from datetime import datetime
from pathlib import Path

from jinja2.exceptions import TemplateError
from transformers.utils.chat_template_utils import _compile_jinja_template

from chat_template_expressions import EXPRESSIONS
from provenance import ROOT, versions, write_json

SYSTEM = {"role": "system", "content": "You are a strict but fair judge."}
CHATS = {
    "user": [{"role": "user", "content": "Name three rivers."}],
    "system and user": [SYSTEM, {"role": "user", "content": "Which text is better, A or B?"}],
    "several turns": [
        SYSTEM,
        {"role": "user", "content": "Is water wet?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "And ice?\n\nAnswer in one word.\n"},
    ],
    "spaces at the edges": [{"role": "user", "content": "\n  Mind the gäps: \t日本. \n\n"}],
    "thoughts": [
        {"role": "user", "content": "Is 7 prime?"},
        {"role": "assistant", "content": "<think>\nOnly 1 and 7 divide it.\n</think>\n\nYes."},
        {"role": "user", "content": "And 9?"},
    ],
    "answer at the end": [
        {"role": "user", "content": "Say {\"a\": 'b'} & <c>."},
        {"role": "assistant", "content": "{\"a\": 'b'} & <c>"},
    ],
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(source: str, messages: list[dict], add_generation_prompt: bool) -> str:
    """The text from `apply_chat_template`, with a fixed date."""
    template = _compile_jinja_template(source)
    template.environment.globals["strftime_now"] = datetime(2024, 7, 26).strftime
    return template.render(messages=messages, tools=None, documents=None, add_generation_prompt=add_generation_prompt, **TOKENS)


def rendering(source: str, messages: list[dict], add_generation_prompt: bool) -> str:
    """The text, or the kind of error in its place."""
    try:
        return "text " + render(source, messages, add_generation_prompt)
    except TemplateError as error:
        # The exception of `raise_exception` is of this class itself.
        return "refused " + str(error) if type(error) is TemplateError else "failed"
    except (TypeError, ValueError):
        return "failed"


def expression(source: str) -> str | None:
    """The rendered text of an expression."""
    try:
        return render(source, CHATS["several turns"], True)
    except Exception:  # Python's own errors too
        return None


def main() -> None:
    """Writes the file; with `--texts` also every rendering, for inspection."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("templates", type=Path, help="folder of .jinja files")
    parser.add_argument("--texts", type=Path, help="folder for the renderings; not to be committed")
    arguments = parser.parse_args()
    templates = {}
    for path in sorted(arguments.templates.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        hashes = {}
        for name, messages in CHATS.items():
            for begin in (True, False):
                text = rendering(source, messages, begin)
                key = name + (" +" if begin else "")
                hashes[key] = hashlib.sha256(text.encode()).hexdigest()[:16]
                if arguments.texts:
                    arguments.texts.mkdir(parents=True, exist_ok=True)
                    (arguments.texts / f"{path.stem} {key}.txt").write_text(text, encoding="utf-8")
        templates[path.name] = {"sha256": hashlib.sha256(source.encode()).hexdigest()[:16]} | hashes
    write_json(
        ROOT / "chat_templates.json",
        {
            "made_with": versions("transformers", "jinja2"),
            "tokens": TOKENS,
            "chats": CHATS,
            "expressions": [[source, expression(source)] for source in EXPRESSIONS],
            "templates": templates,
        },
    )


if __name__ == "__main__":
    main()
