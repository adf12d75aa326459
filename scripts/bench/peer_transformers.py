"""transformers' worker: prefill, decoding with its cache, and prompts from scratch in batches of equal length."""

import os
import time

import torch
import transformers
from transformers import AutoModelForCausalLM

import worker


def score(model, work: dict, batch: int) -> dict:
    """Computes each prompt from scratch, `batch` at a time; the head runs on the last position only."""
    answers, prompts = [], work["prompts"]
    for at in range(0, len(prompts), batch):
        ids = torch.tensor(prompts[at : at + batch])
        logits = model(ids, use_cache=False, logits_to_keep=1).logits[:, -1].float()
        answers += logits.log_softmax(-1)[:, work["labels"]].tolist()
    return {"answers": answers, "tokens": sum(map(len, prompts))}


def decode(model, steps: int) -> dict:
    """Greedy steps of one text; the first token comes from the prompt and is not counted."""
    output = model(torch.tensor([worker.PROMPT]), use_cache=True, logits_to_keep=1)
    start = time.perf_counter()
    for _ in range(steps):
        output = model(output.logits[:, -1:].argmax(-1), past_key_values=output.past_key_values, use_cache=True)
    return {"seconds": time.perf_counter() - start, "tokens": steps}


def main() -> None:
    """Runs one task."""
    arguments = worker.parser(__doc__)
    arguments.add_argument("--batch", type=int, default=1)
    options = arguments.parse_args()
    work = worker.read_work(options.work)
    torch.set_num_threads(options.threads)
    transformers.utils.logging.set_verbosity_error()
    start = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype="auto").eval()
    worker.emit(
        load_seconds=time.perf_counter() - start,
        version=f"transformers {transformers.__version__}, torch {torch.__version__}",
        isa_limit=os.environ.get("ONEDNN_MAX_CPU_ISA"),
        attention=model.config._attn_implementation,
    )
    with torch.inference_mode():
        if work is None:
            worker.repeat(options.repetitions, lambda: decode(model, options.decode), lambda: decode(model, options.decode))
        else:
            first = {**work, "prompts": work["prompts"][: options.batch]}
            worker.repeat(options.repetitions, lambda: score(model, work, options.batch), lambda: score(model, first, options.batch))


if __name__ == "__main__":
    main()
