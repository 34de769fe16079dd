#!/usr/bin/env python3
"""How much faster than PyTorch is a training step on a GPU? Both in one run, taking turns.

    cargo build --release
    python benches/peers/compare_gpu.py --model alexnet --batch 256 --limit 64MiB --limit 16GiB
    python benches/peers/compare_gpu.py --model resnet50 --batch 32 --math tf32 --layout nhwc

A step is forward, backward and SGD with momentum and weight decay on made-up images that stay on the GPU. PyTorch runs with
`cudnn.benchmark` and free workspace, in NCHW unless asked otherwise; its optimiser is the fastest it has (`foreach`, `fused`
and the default are tried). Ours runs once under every limit, and is counted twice: asked for layer by layer (`steps`), and
recorded once and replayed (`replayed`). Columns: the median time of a step, and PyTorch's median divided into it: below 1 we
are faster.
"""

import argparse
import datetime
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGE, CLASSES = 224, 1000
BATCHES = {"alexnet": 256, "resnet18": 128, "resnet50": 32}
# Our nets of the same structure: `models/resnet18` and `resnet50` are NVIDIA's, with another first pool, and strides elsewhere.
OURS = {"alexnet": "alexnet", "resnet18": "resnet18_torchvision", "resnet50": "resnet50_v1_5"}


def parse_arguments():
    parser = argparse.ArgumentParser(description="our training step on a GPU against PyTorch's")
    parser.add_argument("--model", choices=sorted(BATCHES), default="alexnet")
    parser.add_argument("--batch", type=int, help="mini-batch (default: 256, 128 and 32)")
    parser.add_argument("--math", choices=["fp32", "tf32"], default="fp32")
    parser.add_argument("--layout", choices=["nchw", "nhwc"], default="nchw", help="PyTorch's")
    parser.add_argument("--limit", action="append", help="our workspace limit per kernel; may be repeated (default: 64MiB)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each side in each round")
    parser.add_argument("--microbatch", type=Path, default=ROOT / "target" / "release" / "microbatch")
    parser.add_argument("--json", action="store_true", help="everything measured, as one JSON object")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.batch = arguments.batch or BATCHES[arguments.model]
    arguments.limit = arguments.limit or ["64MiB"]
    return arguments


def torch_steps(arguments):
    """Milliseconds of PyTorch's steps, with the optimiser's form named by `--child`."""
    import torch
    import torchvision

    torch.backends.cudnn.benchmark = True
    allowed = arguments.math == "tf32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.manual_seed(1)
    layout = torch.channels_last if arguments.layout == "nhwc" else torch.contiguous_format
    model = getattr(torchvision.models, arguments.model)(weights=None, num_classes=CLASSES).train().cuda()
    model = model.to(memory_format=layout)
    images = torch.randn(arguments.batch, 3, IMAGE, IMAGE, device="cuda").contiguous(memory_format=layout)
    labels = torch.randint(CLASSES, (arguments.batch,), device="cuda")
    form = {} if arguments.child == "default" else {arguments.child: True}
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, **form)
    loss_function = torch.nn.CrossEntropyLoss()

    def step():
        loss_function(model(images), labels).backward()
        optimiser.step()
        optimiser.zero_grad()

    for _ in range(10):
        step()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(arguments.steps + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return {
        "steps_ms": [start.elapsed_time(end) for start, end in zip(events, events[1:])],
        "peak_bytes": torch.cuda.max_memory_reserved(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "gpu": torch.cuda.get_device_name(),
    }


def run_json(command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def their_run(arguments, form):
    command = [sys.executable, __file__, "--child", form, "--model", arguments.model, "--batch", arguments.batch]
    command += ["--math", arguments.math, "--layout", arguments.layout, "--steps", arguments.steps]
    return run_json(command)


def our_run(arguments, limit):
    model = ROOT / "models" / OURS[arguments.model] / "net.prototxt"
    command = [arguments.microbatch, "time", "--model", model, "--synthetic", "--device", "cuda", "--json"]
    command += ["--batch", arguments.batch, "--math", arguments.math, "--workspace-limit", limit]
    return run_json(command + ["--iterations", arguments.steps])


def measure(arguments):
    steps, about = {}, {}
    for _ in range(arguments.rounds):
        for form in ["default", "foreach", "fused"]:
            run = their_run(arguments, form)
            steps.setdefault(f"PyTorch, {form} SGD", []).extend(run.pop("steps_ms"))
            about = run
        for limit in arguments.limit:
            report = our_run(arguments, limit)
            (run,) = report["runs"]
            ours = [iteration + run["update_ms"] for iteration in run["iterations_ms"]]
            steps.setdefault(f"microbatch, {limit}, steps", []).extend(ours)
            steps.setdefault(f"microbatch, {limit}, replayed", []).extend(run["replayed_ms"])
            about |= {"device": report["device"]}
            about.setdefault("our_gpu_bytes", {})[limit] = run["gpu_bytes"]
    return steps, about


def main():
    arguments = parse_arguments()
    if arguments.child:
        print(json.dumps(torch_steps(arguments)))
        return
    steps, about = measure(arguments)
    medians = {side: statistics.median(times) for side, times in steps.items()}
    best = min(median for side, median in medians.items() if side.startswith("PyTorch"))
    what = {"date": datetime.date.today().isoformat(), "model": arguments.model, "batch": arguments.batch}
    what |= {"math": arguments.math, "layout": arguments.layout}
    if arguments.json:
        print(json.dumps(what | about | {"median_ms": medians, "best_pytorch_ms": best, "steps_ms": steps}))
        return
    print(", ".join(f"{name} {value}" for name, value in (what | about).items()))
    for side, median in medians.items():
        print(f"{side:36} median {median:8.2f} ms   min {min(steps[side]):8.2f} ms   / best PyTorch {median / best:5.2f}")


if __name__ == "__main__":
    main()
