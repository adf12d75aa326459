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
# Where an answer begins, by file: who opens a thought ("template", "model", or "off" where thoughts are off by default), the variables
# that turn thoughts off, and the text after the prompt that closes one, or that the template writes before an answer. From the templates, and from the models' cards.
OFF = {"enable_thinking": False}
CLOSE = "\n</think>\n\n"
THINKING = {
    "Apriel-1.6-15b-Thinker-fixed": ("template", {}, "\n[BEGIN FINAL RESPONSE]\n"),
    "Bielik-11B-v3.0-Instruct": ("off", {}, ""),
    "ByteDance-Seed-OSS": ("model", {"thinking_budget": 0}, "\n"),
    "Cohere2MoE": ("template", {"reasoning": False}, "<|START_TEXT|>"),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("off", {}, ""),
    "GLM-4.6": ("model", OFF, "\n"),
    "GLM-4.7-Flash": ("template", OFF, ""),
    "HuggingFaceTB-SmolLM3-3B": ("model", OFF, ""),
    "Kimi-K2-Thinking": ("model", {}, "<think></think>"),
    "Kimi-K3": ("template", {"thinking": False}, ""),
    "LFM2.5-8B-A1B": ("model", {}, "<think></think>"),
    "MiniMax-M2": ("template", {}, CLOSE),
    "MiniMax-M3": ("model", {"thinking_mode": "disabled"}, ""),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("template", OFF, ""),
    "NVIDIA-Nemotron-Nano-v2": ("template", {}, CLOSE),
    "Qwen-QwQ-32B": ("off", {}, ""),
    "Qwen-Qwen3-0.6B": ("model", OFF, ""),
    "Qwen3.5-4B": ("template", OFF, ""),
    "Reka-Edge": ("off", {}, ""),
    "Spark2.5": ("template", OFF, ""),
    "StepFun3.5-Flash": ("template", {}, "\n</think>\n"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ("template", {}, CLOSE),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("off", {}, ""),
    "deepseek-ai-DeepSeek-V3.1": ("off", {}, ""),
    "deepseek-ai-DeepSeek-V3.2": ("off", {}, ""),
    "deepseek-ai-DeepSeek-V4": ("off", {}, ""),
    "deepseek-ai-DeepSeek-V4-Flash-0731": ("off", {}, ""),
    "google-gemma-4-31B-it": ("off", {}, ""),
    "google-gemma-4-31B-it-interleaved": ("off", {}, ""),
    "ibm-granite-granite-3.3-2B-Instruct": ("off", {}, ""),
    "inclusionai-ling-3.0-flash": ("template", OFF, ""),
    "llama-cpp-deepseek-r1": ("template", {}, CLOSE),
    "llama-cpp-rwkv-world": ("model", OFF, ""),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("model", {}, "[THINK][/THINK]"),
    "muse-glimmer": ("model", {}, " to=user<|message|>"),
    "openai-gpt-oss-120b": ("model", {}, "<|channel|>final<|message|>"),
    "openbmb-MiniCPM5-1B": ("model", OFF, ""),
    "poolside-Laguna-S-2.1": ("template", OFF, ""),
    "poolside-Laguna-XS-2.1": ("off", {}, ""),
    "poolside-Laguna-XS.2": ("off", {}, ""),
    "tencent-Hy3": ("off", {}, ""),
    "upstage-Solar-Open-100B": ("model", {}, "<|content|>"),
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(source: str, messages: list[dict], add_generation_prompt: bool, **variables) -> str:
    """The text from `apply_chat_template`, with a fixed date."""
    template = _compile_jinja_template(source)
    template.environment.globals["strftime_now"] = datetime(2024, 7, 26).strftime
    return template.render(messages=messages, tools=None, documents=None, add_generation_prompt=add_generation_prompt, **variables, **TOKENS)


def rendering(source: str, messages: list[dict], add_generation_prompt: bool) -> str:
    """The text, or the kind of error in its place."""
    try:
        return "text " + render(source, messages, add_generation_prompt)
    except TemplateError as error:
        # The exception of `raise_exception` is of this class itself.
        return "refused " + str(error) if type(error) is TemplateError else "failed"
    except (TypeError, ValueError):
        return "failed"


def hashed(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
    templates, thinking = {}, {}
    for path in sorted(arguments.templates.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        hashes = {}
        for name, messages in CHATS.items():
            for begin in (True, False):
                text = rendering(source, messages, begin)
                key = name + (" +" if begin else "")
                hashes[key] = hashed(text)
                if arguments.texts:
                    arguments.texts.mkdir(parents=True, exist_ok=True)
                    (arguments.texts / f"{path.stem} {key}.txt").write_text(text, encoding="utf-8")
        if (thinks := THINKING.get(path.stem)) is not None:
            opened_by, variables, after = thinks
            text = render(source, CHATS["user"], True, **variables) + after
            thinking[path.name] = {"opened_by": opened_by, "variables": variables, "closed": hashed(text)}
        templates[path.name] = {"sha256": hashed(source)} | hashes
    write_json(
        ROOT / "chat_templates.json",
        {
            "made_with": versions("transformers", "jinja2"),
            "tokens": TOKENS,
            "chats": CHATS,
            "expressions": [[source, expression(source)] for source in EXPRESSIONS],
            "templates": templates,
            "thinking": thinking,
        },
    )


if __name__ == "__main__":
    main()
