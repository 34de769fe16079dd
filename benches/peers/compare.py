#!/usr/bin/env python3
"""How much faster than PyTorch is a training step? Both in one run, taking turns, so that noise hits both alike.

    cargo build --release
    python benches/peers/compare.py --model alexnet --batch 32 --threads 2 --rounds 3

Every round times our net once and PyTorch's once in each way (see pytorch.py), each in a process of its own. A ratio
above 1 says that we are faster: PyTorch's median over all steps of all rounds divided by ours. Beside it stand the
least and the largest ratio of a single round: their distance is the noise. Arguments after `--` go to our command:

    python benches/peers/compare.py --model alexnet -- --workspace-limit 256MiB --max-error 1e-6

If they say nothing of workspace, it gets `--workspace-limit 64MiB`: PyTorch has no limit, and our own default
is there to show what a limit does.
"""

import argparse
import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import pytorch

ROOT = Path(__file__).resolve().parents[2]


def parse_arguments():
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description="our training step against PyTorch's, as a ratio")
    parser.add_argument("--model", choices=sorted(pytorch.BATCHES), default="alexnet")
    parser.add_argument("--batch", type=int, help="mini-batch (default: that of pytorch.py)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each side in each round")
    parser.add_argument("--way", action="append", help="way of PyTorch; may be repeated (default: all)")
    parser.add_argument("--microbatch", type=Path, help="our executable (default: the release build's)")
    parser.add_argument("--json", action="store_true", help="everything measured, as one JSON object")
    arguments = parser.parse_args(sys.argv[1:split])
    arguments.ours = sys.argv[split + 1 :]
    if not any(part.startswith(("--workspace", "--total-workspace")) for part in arguments.ours):
        arguments.ours += ["--workspace-limit", "64MiB"]
    for name in ("batch", "threads", "rounds", "steps"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            parser.error(f"--{name} {value}: must be at least 1")
    arguments.batch = arguments.batch or pytorch.BATCHES[arguments.model]
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    arguments.microbatch = arguments.microbatch or target / "release" / "microbatch"
    if not arguments.microbatch.is_file():
        parser.error(f"{arguments.microbatch} is missing; run: cargo build --release")
    arguments.convs = False  # what pytorch.in_child also looks at
    return arguments


def our_command(arguments):
    model = ROOT / "models" / pytorch.OURS[arguments.model] / "net.prototxt"
    command = [arguments.microbatch, "time", "--model", model, "--synthetic", "--json", "--batch", arguments.batch]
    command += ["--threads", arguments.threads, "--iterations", arguments.steps, *arguments.ours]
    return [str(part) for part in command]


def our_step_ms(report):
    """Steps of forward, backward and update; our report has the update as an average. Of two runs the last is the plan's."""
    run = report["runs"][-1]
    return [iteration + run["update_ms"] for iteration in run["iterations_ms"]]


def their_step_ms(report):
    return [sum(parts) for parts in zip(report["forward_backward_ms"], report["update_ms"])]


def measure(arguments):
    """Steps in milliseconds by side and round, and what each side said of itself."""
    ways = arguments.way or pytorch.DEFAULT_WAYS
    rounds = {side: [] for side in ["microbatch", *ways]}
    identities = {}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        done = subprocess.run(our_command(arguments), stdout=subprocess.PIPE, text=True, check=True)
        rounds["microbatch"].append(our_step_ms(json.loads(done.stdout)))
        for way in ways:
            (result,) = pytorch.in_child(arguments, way)
            rounds[way].append(their_step_ms(result))
            identities = {key: result[key] for key in ("processor", "torch", "torchvision")}
    return rounds, identities


def summary(rounds):
    """Medians and ratios of every side."""
    ours = rounds["microbatch"]

    def of(side, steps):
        ratios = [statistics.median(theirs) / statistics.median(mine) for theirs, mine in zip(steps, ours)]
        pooled = statistics.median(sum(steps, []))
        ratio = pooled / statistics.median(sum(ours, []))
        best = min(map(min, steps))
        return {"side": side, "median_ms": pooled, "min_ms": best, "ratio": ratio, "ratios": ratios}

    return [of(side, steps) for side, steps in rounds.items()]


def commit():
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main():
    arguments = parse_arguments()
    rounds, identity = measure(arguments)
    rows = summary(rounds)
    if arguments.json:
        our = {"commit": commit(), "ours": shlex.join(our_command(arguments)[1:])}
        what = {"date": datetime.date.today().isoformat(), "model": arguments.model, "batch": arguments.batch}
        print(json.dumps(what | {"threads": arguments.threads} | our | identity | {"sides": rows, "steps_ms": rounds}))
        return
    print(f"{arguments.model}, mini-batch {arguments.batch}, {arguments.threads} threads, {arguments.rounds} rounds of")
    print(f"{arguments.steps} steps; torch {identity['torch']}, {identity['processor']}, commit {commit()}")
    for row in rows:
        line = f"{row['side']:28} median {row['median_ms']:8.1f} ms   min {row['min_ms']:8.1f} ms"
        if row["side"] != "microbatch":
            line += f"   ratio {row['ratio']:5.2f}   rounds {min(row['ratios']):.2f}-{max(row['ratios']):.2f}"
        print(line)


if __name__ == "__main__":
    main()
