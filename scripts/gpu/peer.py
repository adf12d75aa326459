"""transformers on a device: runs a list of tasks on one loaded model, in bf16 with torch's own attention; or measures
the device's peak rates.

usage: peer.py --model FOLDER --device DEVICE --tasks FILE
       peer.py --peaks --device DEVICE
       peer.py --hold BYTES --device DEVICE          (allocates all memory of a device except BYTES, until its input ends)

FILE contains a list of {"name", "work": FILE of scripts/bench/work.py, "batches": [1, 8]} and {"name", "decode":
steps}. Prints JSON lines.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

PROMPT = list(range(300, 316))
"""What a text is decoded after; the same tokens as in the `throughput` example."""


def emit(**fields: object) -> None:
    """Prints a line of output."""
    print(json.dumps(fields), flush=True)


def wait(device: str) -> None:
    """Waits until the device is idle."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def timed(device: str, run: Callable[[], object]) -> float:
    """The seconds that a call takes."""
    wait(device)
    start = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - start


def peaks(device: str) -> None:
    """The rates of a large bf16 product, and of reading and writing memory."""
    size = 8192 if device.startswith("cuda") else 1024
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    timed(device, lambda: [a @ b for _ in range(3)])
    seconds = statistics.median(timed(device, lambda: a @ b) for _ in range(10))
    emit(peak="bf16 product", rate=2 * size**3 / seconds, size=size)
    bytes_each = 4 << 30 if device.startswith("cuda") else 64 << 20
    source = torch.empty(bytes_each, dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    timed(device, lambda: target.copy_(source))
    seconds = statistics.median(timed(device, lambda: target.copy_(source)) for _ in range(10))
    emit(peak="memory, both directions of a copy", rate=2 * bytes_each / seconds)


def hold(device: str, left: int) -> None:
    """Allocates all of the device's memory except `left` bytes, until standard input ends."""
    free, _ = torch.cuda.mem_get_info(device)
    held = torch.empty(max(0, free - left), dtype=torch.uint8, device=device)
    emit(held=held.numel(), free=torch.cuda.mem_get_info(device)[0])
    sys.stdin.read()


def load(folder: str, device: str):
    """The model, and whether it has an encoder."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    attention = "sdpa"
    try:
        model = kind.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation=attention, device_map=None)
    except ValueError:
        # Not every version of transformers supports T5's position biases with this attention.
        model = kind.from_pretrained(folder, dtype=torch.bfloat16)
        attention = getattr(model.config, "_attn_implementation", "eager")
    emit(version=f"transformers {transformers.__version__}, torch {torch.__version__}", attention=attention)
    return model.to(device).eval(), config.is_encoder_decoder


def score(model, has_encoder: bool, device: str, work: dict, batch: int) -> list[list[float]]:
    """The labels' log-probabilities after each prompt, each from scratch, in batches."""
    answers, prompts = [], work["prompts"]
    for at in range(0, len(prompts), batch):
        ids = torch.tensor(prompts[at : at + batch], device=device)
        if has_encoder:
            start = torch.zeros((len(ids), 1), dtype=torch.long, device=device)
            logits = model(input_ids=ids, decoder_input_ids=start, use_cache=False).logits[:, -1]
        else:
            logits = model(ids, use_cache=False, logits_to_keep=1).logits[:, -1]
        answers += logits.float().log_softmax(-1)[:, work["labels"]].tolist()
    return answers


def decode(model, has_encoder: bool, device: str, steps: int) -> float:
    """Seconds for the greedy steps of one text, from its second token on."""
    prompt = torch.tensor([PROMPT], device=device)
    if has_encoder:
        encoded = model.get_encoder()(prompt)
        token = torch.zeros((1, 1), dtype=torch.long, device=device)
        output = model(encoder_outputs=encoded, decoder_input_ids=token, use_cache=True)

        def step(token, past):
            return model(encoder_outputs=encoded, decoder_input_ids=token, past_key_values=past, use_cache=True)
    else:
        output = model(prompt, use_cache=True, logits_to_keep=1)

        def step(token, past):
            return model(token, past_key_values=past, use_cache=True)

    def all_steps(output=output) -> None:
        for _ in range(steps):
            output = step(output.logits[:, -1:].argmax(-1), output.past_key_values)

    return timed(device, all_steps)


def run(task: dict, model, has_encoder: bool, device: str, repetitions: int) -> None:
    """Runs a task in its fastest way."""
    if "decode" in task:
        decode(model, has_encoder, device, task["decode"])
        seconds = [decode(model, has_encoder, device, task["decode"]) for _ in range(repetitions)]
        emit(name=task["name"], seconds=seconds, tokens=task["decode"])
        return
    work = json.loads(Path(task["work"]).read_text())
    best = None
    for batch in task["batches"]:
        answers: list = []
        try:
            seconds = [timed(device, lambda batch=batch: answers.append(score(model, has_encoder, device, work, batch))) for _ in range(repetitions + 1)][1:]
        except torch.OutOfMemoryError:
            continue
        if best is None or statistics.median(seconds) < statistics.median(best["seconds"]):
            best = {"seconds": seconds, "batch": batch, "answers": answers[-1], "tokens": sum(map(len, work["prompts"]))}
    emit(name=task["name"], **(best or {"error": "out of memory"}))


def main() -> None:
    """Runs one model's tasks, or another mode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tasks", type=Path)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--peaks", action="store_true")
    parser.add_argument("--hold", type=int)
    options = parser.parse_args()
    with torch.inference_mode():
        if options.peaks:
            peaks(options.device)
        elif options.hold is not None:
            hold(options.device, options.hold)
        else:
            model, has_encoder = load(options.model, options.device)
            for task in json.loads(options.tasks.read_text()):
                run(task, model, has_encoder, options.device, options.repetitions)
            if options.device.startswith("cuda"):
                emit(peak_bytes=torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
