"""Checks of `scripts/gpu/run` that must pass: device tests on this device, SmolLM2 on both, and exhausted memory."""

import json
import os
import random
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

from kit import ROOT, Failed, Kit, Skipped

FIGURE = re.compile(r"(?:largest difference|differs by) ([0-9.]+(?:e-?[0-9]+)?)")
CHECKS = "engine::device_checks::"
TESTS = "engine::device_tests::"
# Number of the check, its description, the program, and its tests: a name, or all with a prefix.
OURS = [
    (2, "logits of every golden decoder, with and without cache", "runtime", [f"{TESTS}candles_operations_give_the_logits_of_our_kernels_with_and_without_cache"]),
    (2, "logits of trained weights", "runtime", [f"{TESTS}trained_weights_give_the_logits_of_our_kernels"]),
    (2, "states layer by layer", "runtime", [f"{CHECKS}states_agree_layer_by_layer"]),
    (2, "log-probabilities of every golden checkpoint, and SmolLM2's", "devices", ["scores_agree_with_our_kernels_on_every_checkpoint"]),
    (3, "packed against alone; prefixes of 511, 512, 513; window edges; nothing wanted", "runtime", [f"{CHECKS}prefixes_at_the_edges_of_blocks_and_windows_packed_and_alone"]),
    (3, "shared against not shared", "runtime", [f"{TESTS}token_scores_agree_with_our_kernels_shared_or_not", f"{TESTS}what_several_texts_see_is_read_once_and_gives_the_same"]),
    (4, "300 greedy tokens, then read in one pass", "runtime", [f"{CHECKS}greedy_texts_are_the_likeliest_when_they_are_read_in_one_pass"]),
    (4, "greedy texts are those of cpu", "devices", ["greedy_texts_are_those_of_our_kernels"]),
    (5, "ids out of range", "runtime", [f"{CHECKS}a_device_still_computes_after_a_token_outside_the_vocabulary", f"{TESTS}a_token_outside_the_vocabulary_is_an_error"]),
    (6, "64 heads × 512 rows × 66,560 positions (--small: 700)", "runtime", [f"{CHECKS}heads_times_rows_times_positions_may_be_beyond_32_bits"]),
    (7, "every operation on every layout: all other tests of decoders, some in bf16", "runtime", [TESTS]),
    (7, "encoders and encoder-decoders, some in bf16", "architectures", ["devices::"]),
    (7, "encoders that read texts and masks", "devices", ["an_encoder_reads_texts_and_masks_as_our_kernels_do"]),
    (7, "class heads", "classifiers", ["logits_on_candles_device_are_near"]),
    (7, "models of candle-transformers", "devices", ["models_of_candle_transformers_answer_alike_whatever_is_shared"]),
    (8, "20 repeats in other orders", "runtime", [f"{CHECKS}repeats_in_other_orders_differ_by_rounding_alone"]),
    (10, "`fast`: packed against alone, nothing wanted", "runtime", [f"{CHECKS}fast_is_the_same_packed_and_alone_but_for_rounding"]),
    (10, "`fast` near `exact` for every head length of flash attention", "runtime", [f"{CHECKS}fast_is_near_exact_for_every_head_length"]),
    (10, "`fast` near `exact`", "devices", ["fast_on_a_device_is_bf16_near_the_exact_scores", "an_encoder_decoder_in_bf16_is_near_the_exact_scores_however_the_work_is_cut"]),
]
POSITIONS = 66560


def listed(kit: Kit, program: str) -> list[str]:
    """The tests of a program."""
    path = kit.program(program)
    if not path.exists():
        raise Failed(f"there is no {path.name} in {kit.programs}/kit")
    names = kit.call(path, "--list", "--format", "terse", limit=60).stdout.splitlines()
    return [name.removesuffix(": test") for name in names if name.endswith(": test")]


def ours(kit: Kit) -> None:
    """Runs each test in a separate process, several at a time, so that a crash affects no other test."""
    known = {program: listed(kit, program) for _, _, program, _ in OURS}
    named = {test for *_, tests in OURS for test in tests}
    # Long on a processor, and run in every build there.
    slow = set() if kit.on_cuda else {f"{TESTS}trained_weights_give_the_logits_of_our_kernels"}

    def check(entry: tuple) -> None:
        number, what, program, wanted = entry
        tests = [t for t in known[program] if t in wanted or any(t.startswith(w) and w.endswith("::") and t not in named for w in wanted)]
        if len(tests) < len(wanted):
            missing = ", ".join(sorted(set(wanted) - set(known[program])))
            kit.check(number, what, lambda: fail(f"{program} has no test {missing}"))
            return
        kit.check(number, what, lambda: "" if kit.no_run else run([t for t in tests if t not in slow], program))

    def run(tests: list[str], program: str) -> str:
        if not tests:
            raise Skipped("long on a processor; `cargo test` runs it")
        figures = []
        for test in tests:
            variables = {} if kit.small else {"PROBITY_TEST_POSITIONS": str(POSITIONS)}
            stdout = kit.call(kit.program(program), test, "--exact", "--nocapture", "--test-threads=1", limit=90, variables=variables).stdout
            figures += [float(figure) for figure in FIGURE.findall(stdout)]
        return f"largest difference {max(figures):.1e}" if figures else ""

    with ThreadPoolExecutor(4 if kit.on_cuda else 1) as threads:
        list(threads.map(check, OURS))


def fail(reason: str) -> str:
    """A failed check."""
    raise Failed(reason)


def smollm2_requests(count: int) -> list[dict]:
    """Prompts of all kinds with shared prefixes."""
    said = "The island council voted on Monday to replace its two ferries with a single electric vessel by next spring. "
    requests: list[dict] = []
    for index in range(count):
        text = f"{said * (index % 4)}Sentence {index}: the ferry is {'late' if index % 3 else 'on time'}."
        ask = {"continuation": " It leaves at noon."} if index % 2 else {"labels": {"A": ["A", " A"], "B": ["B", " B"]}}
        asked = {"messages": [{"role": "user", "content": text}], "answer_prefix": "Answer:"} if index % 5 == 4 else {"prompt": text}
        requests.append({"id": str(index), **asked, **ask})
    return requests


def numbers(answer: dict) -> list[float]:
    """An answer's log-probabilities."""
    if "labels" in answer:
        return [label["logprob"] for label in answer["labels"].values()]
    return answer["token_logprobs"]


def smollm2(kit: Kit) -> None:
    """Tests the command line."""
    model, folder = kit.smollm2, kit.folder / "smollm2"
    folder.mkdir(parents=True, exist_ok=True)
    asked = folder / "asked.jsonl"
    asked.write_text("".join(json.dumps(request) + "\n" for request in smollm2_requests(8 if kit.small else 40)))
    written = folder / "written.jsonl"
    prompt = {"id": "0", "messages": [{"role": "user", "content": "Tell me about a ferry."}], "max_tokens": 40 if kit.small else 300}
    written.write_text(json.dumps(prompt) + "\n")
    out = folder / "manifest.json"

    def scores(device: str, *more: str) -> list[float]:
        command = [kit.probity, "--quiet", "logprobs", "--model", model, "--device", device, "--input", asked, *more]
        answer = kit.call(*command, *(["--dry-run"] if kit.no_run else []))
        return [number for line in answer.lines for number in numbers(line)] if not kit.no_run else [0.0]

    def furthest(got: list[float], expected: list[float]) -> str:
        if len(got) != len(expected) or not got:
            raise Failed(f"{len(got)} numbers, and not {len(expected)}")
        if kit.no_run:
            return ""
        largest = max(abs(a - b) for a, b in zip(got, expected, strict=True))
        if largest > 1e-3:
            raise Failed(f"largest difference {largest:.1e}")
        return f"largest difference {largest:.1e}"

    expected = scores("cpu")
    kit.check(2, "SmolLM2 by the command line, against cpu", lambda: furthest(scores(kit.device, *([] if kit.no_run else ["--manifest", str(out), "--overwrite"])), expected))
    kit.check(3, "SmolLM2 with --no-sharing", lambda: furthest(scores(kit.device, "--no-sharing"), expected))
    kit.check(3, "SmolLM2 with --token-budget 64", lambda: furthest(scores(kit.device, "--token-budget", "64"), expected))

    def texts() -> str:
        ids = []
        for device in ("cpu", kit.device):
            command = [kit.probity, "--quiet", "generate", "--model", model, "--device", device, "--input", written]
            ids.append(kit.call(*command, *(["--dry-run"] if kit.no_run else [])).lines)
        if ids[0] != ids[1] and not kit.no_run:
            first, second = (answer[0]["tokens"] for answer in ids)
            if first != second:
                same = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), min(len(first), len(second)))
                raise Failed(f"the texts differ from token {same} of {len(first)} on")
        return "" if kit.no_run else f"{len(ids[0][0]['tokens'])} tokens"

    kit.check(4, "SmolLM2's greedy text is that of cpu", texts)
    kit.check(8, "the signature names the device", lambda: signature(kit, out))


def signature(kit: Kit, manifest) -> str:
    """The device in the manifest."""
    if kit.no_run:
        return ""
    said = json.loads(manifest.read_text())
    found = next((str(value) for value in walk(said) if isinstance(value, str) and kit.device in value and len(value) > len(kit.device)), kit.device)
    if kit.device not in json.dumps(said):
        raise Failed(f"{kit.device} is not in the manifest")
    return found[:300]


def walk(value: object):
    """All values in a JSON value."""
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from walk(inner)


def out_of_memory(kit: Kit) -> None:
    """With nearly all memory of the card in use by another program, a run fails with an error, and is resumed when
    there is room again."""
    model, folder = kit.smollm2, kit.folder / "memory"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    data, words = folder / "data.jsonl", random.Random(7)
    samples = [json.loads(line) for line in (ROOT / "samples/demo.jsonl").read_text().splitlines()[:2]]
    long = " ".join(words.choice(["ferry", "island", "council", "harbour", "winter"]) for _ in range(6500))
    if kit.on_cuda:
        samples.append({"id": "long", "context": long, "candidates": [{"id": name, "text": f"Text {name} of a ferry."} for name in ("a", "b")]})
    data.write_text("".join(json.dumps(sample) + "\n" for sample in samples))

    def run(out: str, *more: str, codes: tuple[int, ...] = (0,)) -> str:
        """The error message; empty after success."""
        command = [kit.probity, "compare", "--model", model, "--device", kit.device, "--data", data, "--attribute", "coherence", "--no-gold"]
        command += ["--dry-run"] if kit.no_run else ["--out", folder / out]
        answer = kit.call(*command, *more, codes=codes, limit=60)
        return answer.stderr if "error:" in answer.stderr else ""

    def cut(left: int) -> str:
        """The same while another program holds all memory of the card except `left` bytes."""
        shutil.rmtree(folder / "cut", ignore_errors=True)
        hog = subprocess.Popen(
            [kit.python, ROOT / "scripts/gpu/peer.py", "--hold", str(left), "--device", kit.device],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ,
        )
        try:
            hog.stdout.readline()
            return run("cut", "--cache-budget", "64GiB", "--token-budget", "256", codes=(0, 2))
        finally:
            hog.stdin.close()
            hog.wait(timeout=30)

    def check() -> str:
        if not kit.on_cuda:
            run("dry")
            raise Skipped(f"memory of {kit.device} is that of the machine: only a card can run out and let the program go on")
        if not kit.has_torch:
            raise Skipped("no PyTorch, which holds the card's memory meanwhile")
        run("whole")
        # Enough for weights, activations and the CUDA context, whose size varies, but not for the keys and values of
        # the long text.
        for left in (900, 1200, 1600, 2200):
            said = cut(left << 20)
            if "the model needs" not in said:
                break
        if not said:
            raise Failed(f"{left} MiB were enough for all of it")
        if "memory" not in said.lower():
            raise Failed(f"the error does not speak of memory: {said.strip().splitlines()[-1][:200]}")
        run("cut", "--resume", "--cache-budget", "64GiB", "--token-budget", "256")
        whole, cut = ((folder / name / "comparisons.jsonl").read_text().splitlines() for name in ("whole", "cut"))
        if len(whole) != len(cut):
            raise Failed(f"{len(cut)} rows after --resume, and not {len(whole)}")
        return f"an error, then {len(cut)} rows with --resume"

    kit.check(9, "out of memory in the middle, then --resume", check)
