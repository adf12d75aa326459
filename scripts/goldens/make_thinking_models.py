"""Tiny models that think before they answer, trained on our own text: tests/goldens/thinking.

Each of the three marks thoughts as a family does: Qwen3 (opened by the model, with a switch in the template), DeepSeek-R1
(opened by the template) and gpt-oss (channels). After the thought they answer with one of `ANSWERS`, at random. `masses.json` holds
the probability of `A` and `B` together at three positions, computed by transformers.
"""

import json
import random

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from provenance import ROOT, write_json
from tiny_tokenizers import CORPUS, byte_level

FOLDER = ROOT / "thinking"
ANSWERS = ["A", "B", "1", "2", "3", "4", "5", "Yes", "No", "Answer: A", "Answer: B", "[[A]]", "[[B]]"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHANNELS = ["<|endoftext|>", "<|start|>", "<|end|>", "<|return|>", "<|channel|>", "<|message|>"]
TURN = "{{ '<|im_start|>' + message.role + '\\n' }}"
# The thought of an earlier answer is written, and an answer after the switch has an empty one.
SWITCHED = (
    "{% for message in messages %}" + TURN + "{% if message.reasoning_content %}"
    "{{ '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}{{ message.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
# Earlier thoughts are not written.
OPENED = (
    "{% for message in messages %}" + TURN + "{{ message.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
CHANNEL = (
    "{% for message in messages %}{% if message.role == 'assistant' %}{% if message.thinking %}"
    "{{ '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' }}{% endif %}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + message.content }}"
    "{% if loop.last and not add_generation_prompt %}<|return|>{% else %}<|end|>{% endif %}"
    "{% else %}{{ '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
# Template, specials, end of a turn, text before the thought after the generation prompt, closing text, and an empty thought.
STYLES = {
    "qwen3": (SWITCHED, SPECIALS, "<|im_end|>", "<think>\n", "\n</think>\n\n", "<think>\n\n</think>\n\n"),
    "r1": (OPENED, SPECIALS, "<|im_end|>", "", "\n</think>\n\n", "\n</think>\n\n"),
    "harmony": (
        CHANNEL,
        CHANNELS,
        "<|return|>",
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        "<|channel|>final<|message|>",
    ),
}
QUESTION = [{"role": "user", "content": "Which text is better, A or B? Answer with one letter."}]
STEPS = 700


def prompt(tokenizer: PreTrainedTokenizerFast, messages: list[dict]) -> str:
    """The chat up to the start of the answer."""
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def example(chance: random.Random, tokenizer: PreTrainedTokenizerFast, style: str) -> str:
    """A chat with a thought, or with an empty one, and an answer."""
    _, _, end, opening, closing, empty = STYLES[style]
    lines = [line for line in CORPUS.splitlines() if line.strip()]
    chat = [{"role": "user", "content": "\n".join(chance.choices(lines, k=chance.randint(1, 6)))}]
    if chance.random() < 0.3:
        chat.insert(0, {"role": "system", "content": "You are a strict but fair judge."})
    sentences = ["The first text is clear.", "The second text is short.", "Both say what the question wanted.", "The better text is true."]
    thought = opening + " ".join(chance.choices(sentences, k=chance.randint(1, 4))) + closing
    return prompt(tokenizer, chat) + (empty if chance.random() < 0.4 else thought) + chance.choice(ANSWERS) + end


def train(style: str, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A model of 40,000 parameters."""
    torch.manual_seed(1)
    chance = random.Random(1)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=4096, tie_word_embeddings=True, rope_theta=10000.0,
        bos_token_id=0, eos_token_id=tokenizer.eos_token_id,
    )
    model = Qwen3ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        texts = [example(chance, tokenizer, style) for _ in range(8)]
        batch = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        loss = model(**batch, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.to(torch.bfloat16).float().eval()


def mass(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, text: str) -> float:
    """P(A) + P(B) after a text."""
    ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
    with torch.no_grad():
        probabilities = torch.softmax(model(ids).logits[0, -1].double(), dim=-1)
    return sum(probabilities[tokenizer.convert_tokens_to_ids(letter)].item() for letter in "AB")


def build(style: str) -> dict[str, float]:
    """Writes the model, and returns masses of labels."""
    template, specials, end, opening, closing, empty = STYLES[style]
    marks = [] if style == "harmony" else ["<think>", "</think>"]
    raw: Tokenizer = byte_level("qwen2", 384, marks, specials)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token=None, eos_token=end, pad_token=specials[0], chat_template=template
    )
    model = train(style, tokenizer)
    folder = FOLDER / style
    model.to(torch.bfloat16).save_pretrained(folder)
    # Read again, since the conversion rounds the buffers of rotary embeddings too.
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    raw.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "chat_template": template,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    start = prompt(tokenizer, QUESTION)
    return {
        "usual": mass(model, tokenizer, start),
        "closed": mass(model, tokenizer, start + empty),
        "after a thought": mass(model, tokenizer, start + opening + "The first text is clear." + closing),
    }


def main() -> None:
    """Writes all."""
    write_json(FOLDER / "masses.json", {style: build(style) for style in STYLES})


if __name__ == "__main__":
    main()
