"""llama.cpp's worker, on its C interface: prefill, decoding, and a list of comparisons with its own prefix reuse."""

import ctypes
import time
from functools import partial

import llama_cpp as lib
import numpy as np

import worker

UBATCH = 512


class Engine:
    """A model and a context."""

    def __init__(self, path: str, threads: int, flash_attention: bool, context: int, sequences: int):
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp could not load {path}")
        params = lib.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = max(UBATCH, context)
        params.n_ubatch = UBATCH
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = 1 if flash_attention else 0
        params.kv_unified = True
        params.no_perf = True
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp could not make a context")
        self.memory = lib.llama_get_memory(self.context)
        self.vocab_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.batch = lib.llama_batch_init(params.n_batch, 0, 1)

    def forget(self) -> None:
        """Empties the cache."""
        lib.llama_memory_clear(self.memory, False)

    def run(self, stretches: list[tuple[int, int, list[int]]], logits: bool) -> list[np.ndarray]:
        """Runs spans `(sequence, position, tokens)` in one call; returns the last row's logits of each if requested."""
        batch, rows, count = self.batch, [], 0
        for sequence, position, tokens in stretches:
            for offset, token in enumerate(tokens):
                batch.token[count] = token
                batch.pos[count] = position + offset
                batch.n_seq_id[count] = 1
                batch.seq_id[count][0] = sequence
                batch.logits[count] = False
                count += 1
            batch.logits[count - 1] = logits
            rows.append(count - 1)
        batch.n_tokens = count
        if lib.llama_decode(self.context, batch) != 0:
            raise RuntimeError(f"llama.cpp could not decode {count} tokens")
        return [self.logits(row) for row in rows] if logits else []

    def logits(self, row: int) -> np.ndarray:
        """A copy, because the next call overwrites them."""
        address = lib.llama_get_logits_ith(self.context, row)
        return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (self.vocab_size,)).copy()

    def share(self, source: int, target: int) -> None:
        """Shares the cache of one sequence with another, without computing or copying."""
        lib.llama_memory_seq_cp(self.memory, source, target, -1, -1)

    def drop(self, sequence: int) -> None:
        """Removes a sequence."""
        lib.llama_memory_seq_rm(self.memory, sequence, -1, -1)


def label_logprobs(logits: np.ndarray, labels: list[int]) -> list[float]:
    """Log-probabilities of the label tokens under the whole vocabulary."""
    values = logits.astype(np.float64)
    top = values.max()
    return [float(values[label] - top - np.log(np.exp(values - top).sum())) for label in labels]


def prompts_one_by_one(engine: Engine, work: dict) -> dict:
    """Computes each prompt from scratch."""
    answers = []
    for prompt in work["prompts"]:
        engine.forget()
        answers.append(label_logprobs(engine.run([(0, 0, prompt)], True)[0], work["labels"]))
    return {"answers": answers, "tokens": sum(map(len, work["prompts"]))}


def comparisons(engine: Engine, work: dict, group: int) -> dict:
    """All ordered pairs. Computes context and context + first candidate once; up to `group` prompts that continue them
    run in one batch."""
    context, candidates, question = work["context"], work["candidates"], work["question"]
    answers, tokens = [], len(context)
    engine.forget()
    engine.run([(0, 0, context)], False)
    for first, candidate in enumerate(candidates[: work["firsts"]]):
        engine.share(0, 1)
        engine.run([(1, len(context), candidate)], False)
        tokens += len(candidate)
        start = len(context) + len(candidate)
        rests = [other + question for second, other in enumerate(candidates) if second != first]
        for at in range(0, len(rests), group):
            stretches = [(2 + i, start, rest) for i, rest in enumerate(rests[at : at + group])]
            for sequence, _, rest in stretches:
                engine.share(1, sequence)
                tokens += len(rest)
            answers += [label_logprobs(logits, work["labels"]) for logits in engine.run(stretches, True)]
            for sequence, _, _ in stretches:
                engine.drop(sequence)
        engine.drop(1)
    return {"answers": answers, "tokens": tokens}


def decode(engine: Engine, steps: int) -> dict:
    """Greedy steps of one text; the first token comes from the prompt and is not counted."""
    engine.forget()
    logits = engine.run([(0, 0, worker.PROMPT)], True)[0]
    start = time.perf_counter()
    for step in range(steps):
        logits = engine.run([(0, len(worker.PROMPT) + step, [int(logits.argmax())])], True)[0]
    return {"seconds": time.perf_counter() - start, "tokens": steps}


def main() -> None:
    """Runs one task."""
    arguments = worker.parser(__doc__)
    arguments.add_argument("--flash", choices=["on", "off"], default="on")
    arguments.add_argument("--group", type=int, help="reuse prefixes, and run this many comparisons per batch")
    options = arguments.parse_args()
    work = worker.read_work(options.work)
    longest = max((len(prompt) for prompt in work["prompts"]), default=0) if work else len(worker.PROMPT) + options.decode
    sequences = 2 + (options.group or 0)
    wanted = longest
    if options.group:
        wanted = len(work["context"]) + len(work["candidates"][0]) + options.group * (longest - len(work["context"]))
    start = time.perf_counter()
    engine = Engine(options.model, options.threads, options.flash == "on", -(-wanted // 256) * 256, sequences)
    worker.emit(load_seconds=time.perf_counter() - start, version=f"llama.cpp of llama-cpp-python {lib.__version__}", system_info=lib.llama_print_system_info().decode())
    if work is None:
        worker.repeat(options.repetitions, lambda: decode(engine, options.decode), lambda: decode(engine, options.decode))
        return
    first = {**work, "prompts": work["prompts"][:1]}
    run = partial(comparisons, group=options.group) if options.group else prompts_one_by_one
    worker.repeat(options.repetitions, lambda: run(engine, work), lambda: prompts_one_by_one(engine, first))


if __name__ == "__main__":
    main()
