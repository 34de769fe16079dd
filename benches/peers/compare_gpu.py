#!/usr/bin/env python3
"""How much faster than PyTorch is a training step on a GPU? Both in one run, taking turns.

    cargo build --release
    python benches/peers/compare_gpu.py --model alexnet --limit 64MiB --limit 16GiB
    python benches/peers/compare_gpu.py --model resnet50 --math bf16 --layout nhwc --form both

A step is forward, backward and SGD with momentum and weight decay on made-up images that stay on the GPU. Nets are
torchvision's on both sides. Ours lie in NCHW in FP32, and in NHWC in TF32 and BF16, which PyTorch computes under `autocast`:
weights are FP32 on both sides. PyTorch runs in four forms, each in NCHW and in NHWC (`channels_last`) unless asked otherwise:

    eager       as written
    recorded    the eager step as one CUDA graph, replayed
    compiled    the model through `torch.compile`
    both        the compiled step as one CUDA graph, replayed

A process times one net in one form: a second net in one process may be compiled for changing shapes, and slower. It has
`cudnn.benchmark` with all algorithms (`benchmark_limit` 0), free workspace, and SGD's fused kernel. Ours runs once under every
limit, and is counted twice: asked for layer by layer (`steps`), and recorded once and replayed (`replayed`). Columns: the
median time of a step, and PyTorch's best median divided into it: below 1 we are faster.
"""

import argparse
import datetime
import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytorch

ROOT = Path(__file__).resolve().parents[2]
IMAGE, CLASSES = 224, 1000
BATCHES = {"alexnet": 256, "densenet121": 64, "googlenet": 128, "resnet18": 128, "resnet50": 32, "vgg16": 64}
# GoogLeNet without its two auxiliary heads, as ours is.
THEIR_OPTIONS = {"googlenet": {"aux_logits": False, "init_weights": False}}
FORMS = ["eager", "recorded", "compiled", "both"]
WARM_UP_STEPS = 10
# What the arithmetic is called here, in the layout that is faster in it.
OUR_OPTIONS = {
    "fp32": ["--math", "fp32"],
    "tf32": ["--math", "tf32", "--layout", "nhwc"],
    "bf16": ["--dtype", "bf16", "--layout", "nhwc"],
}


def parse_arguments():
    parser = argparse.ArgumentParser(description="our training step on a GPU against PyTorch's")
    parser.add_argument("--model", choices=sorted(BATCHES), default="alexnet")
    parser.add_argument("--batch", type=int, help="mini-batch (default: 32 to 256, by the model)")
    parser.add_argument("--math", choices=list(OUR_OPTIONS), default="fp32")
    parser.add_argument("--layout", action="append", choices=["nchw", "nhwc"], help="PyTorch's; may be repeated (default: both)")
    parser.add_argument("--form", action="append", choices=FORMS, help="PyTorch's; may be repeated (default: all)")
    parser.add_argument("--limit", action="append", help="our workspace limit per kernel; may be repeated (default: 64MiB)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each side in each round")
    parser.add_argument("--microbatch", type=Path, default=ROOT / "target" / "release" / "microbatch")
    parser.add_argument("--json", action="store_true", help="everything measured, as one JSON object")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.batch = arguments.batch or BATCHES[arguments.model]
    arguments.layout, arguments.form = arguments.layout or ["nchw", "nhwc"], arguments.form or FORMS
    arguments.limit = arguments.limit or ["64MiB"]
    return arguments


def recorded(torch, step):
    """A function that replays `step`, recorded as a CUDA graph after a warm-up on a stream of its own."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def torch_steps(arguments):
    """Milliseconds of PyTorch's steps in the form and layout asked for."""
    import torch
    import torchvision

    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 0
    allowed = arguments.math == "tf32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.manual_seed(1)
    (form,), (layout,) = arguments.form, arguments.layout
    layout = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    options = {"weights": None, "num_classes": CLASSES, **THEIR_OPTIONS.get(arguments.model, {})}
    model = getattr(torchvision.models, arguments.model)(**options).train().cuda()
    model = model.to(memory_format=layout)
    images = torch.randn(arguments.batch, 3, IMAGE, IMAGE, device="cuda").contiguous(memory_format=layout)
    labels = torch.randint(CLASSES, (arguments.batch,), device="cuda")
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, fused=True)
    loss_function = torch.nn.CrossEntropyLoss()
    run = torch.compile(model) if form in ("compiled", "both") else model
    # A graph must not keep weights that were rounded while it was recorded.
    rounded = torch.autocast("cuda", torch.bfloat16, enabled=arguments.math == "bf16", cache_enabled=False)

    def step():
        optimiser.zero_grad()
        with rounded:
            loss = loss_function(run(images), labels)
        loss.backward()
        optimiser.step()

    timed = recorded(torch, step) if form in ("recorded", "both") else step
    for _ in range(WARM_UP_STEPS):
        timed()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(arguments.steps + 1)]
    events[0].record()
    for event in events[1:]:
        timed()
        event.record()
    torch.cuda.synchronize()
    return {
        "steps_ms": [start.elapsed_time(end) for start, end in zip(events, events[1:])],
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "gpu": torch.cuda.get_device_name(),
    }


def run_json(command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def their_run(arguments, form, layout):
    command = [sys.executable, __file__, "--child", "--form", form, "--layout", layout, "--model", arguments.model]
    command += ["--batch", arguments.batch, "--math", arguments.math, "--steps", arguments.steps]
    return run_json(command)


def our_run(arguments, limit):
    model = ROOT / "models" / pytorch.OURS[arguments.model] / "net.prototxt"
    command = [arguments.microbatch, "time", "--model", model, "--synthetic", "--device", "cuda", "--json"]
    command += ["--batch", arguments.batch, "--workspace-limit", limit, "--iterations", arguments.steps]
    return run_json(command + OUR_OPTIONS[arguments.math])


def measure(arguments):
    steps, about = {}, {}
    for _ in range(arguments.rounds):
        for layout, form in itertools.product(arguments.layout, arguments.form):
            run = their_run(arguments, form, layout)
            steps.setdefault(f"PyTorch, {layout}, {form}", []).extend(run.pop("steps_ms"))
            about.setdefault("their_gpu_bytes", {})[f"{layout}, {form}"] = run.pop("reserved_bytes")
            about |= run
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
    what |= {"math": arguments.math}
    if arguments.json:
        print(json.dumps(what | about | {"median_ms": medians, "best_pytorch_ms": best, "steps_ms": steps}))
        return
    print(", ".join(f"{name} {value}" for name, value in (what | about).items()))
    for side, median in medians.items():
        print(f"{side:36} median {median:8.2f} ms   min {min(steps[side]):8.2f} ms   / best PyTorch {median / best:5.2f}")


if __name__ == "__main__":
    main()
