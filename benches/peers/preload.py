#!/usr/bin/env python3
"""How much faster is unmodified PyTorch with libmicrobatch_cudnn.so? With and without it in one run, taking turns.

    cargo build --release -p microbatch-preload
    python benches/peers/preload.py --model alexnet --batch 256 --cap 64
    python benches/peers/preload.py --model resnet18 --batch 128 --math tf32 --layout nhwc
    python benches/peers/preload.py --model vgg16 --path graphs --cap 256

A step is forward, backward and SGD with momentum on made-up images that stay on the GPU, with `cudnn.benchmark` and without
dropout. Each side runs in processes of its own. `--path legacy` is PyTorch's legacy path to cuDNN
(`TORCH_CUDNN_V8_API_DISABLED=1`), where the workspace of convolutions is capped at `--cap` MiB (`CUDNN_CONV_WSCAP_DBG`; 0: not
at all); `--path graphs`, its default one, knows no cap, so that there `--cap` limits our plans only. One line for each side: median and
least step, first step (which measures; with a database, only where `UCUDNN_DATABASE` names one), memory; then the gain and how
far the losses of the first steps are apart, beside how far two runs without the library are, of which one chooses other
algorithms (Get in the place of Find, or the other way round).
`--report` prints what every convolution got.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BATCHES = {"alexnet": 256, "vgg16": 64, "resnet18": 128, "resnet50": 64, "grouped": 64, "dilated": 64}
IMAGE, CLASSES = 224, 1000


def parse_arguments():
    parser = argparse.ArgumentParser(description="PyTorch's training step with and without libmicrobatch_cudnn.so")
    parser.add_argument("--model", choices=sorted(BATCHES), default="alexnet")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--math", choices=["fp32", "tf32", "bf16"], default="fp32")
    parser.add_argument("--layout", choices=["nchw", "nhwc"], default="nchw")
    parser.add_argument("--path", choices=["legacy", "graphs"], default="legacy")
    parser.add_argument("--cap", type=int, default=64, help="MiB of workspace per convolution; 0 for no cap")
    parser.add_argument("--no-benchmark", action="store_true", help="cuDNN's heuristics (Get) instead of measuring (Find)")
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each side in each round")
    parser.add_argument("--losses", type=int, default=20, help="steps whose losses are compared")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--library", type=Path, default=ROOT / "target" / "release" / "libmicrobatch_cudnn.so")
    parser.add_argument("--report", action="store_true", help="print what every convolution got")
    parser.add_argument("--child", choices=["same", "other"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.batch = arguments.batch or BATCHES[arguments.model]
    return arguments


def network(torch, name):
    """A net of torchvision without dropout, or a small one with grouped or dilated convolutions."""
    if name in ("grouped", "dilated"):
        special = {"groups": 4, "padding": 1} if name == "grouped" else {"dilation": 2, "padding": 2}
        layers, channels = [], 3
        for width in (64, 128, 256):
            layers += [torch.nn.Conv2d(channels, width, 5, stride=2, padding=2), torch.nn.ReLU()]
            layers += [torch.nn.Conv2d(width, width, 3, **special), torch.nn.ReLU()]
            channels = width
        layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(channels, CLASSES)]
        return torch.nn.Sequential(*layers)
    import torchvision

    without_dropout = {"dropout": 0.0} if name in ("alexnet", "vgg16") else {}
    return getattr(torchvision.models, name)(weights=None, num_classes=CLASSES, **without_dropout)


def child(arguments):
    """Trains in this process and returns times and losses."""
    import torch

    torch.backends.cudnn.benchmark = arguments.no_benchmark == (arguments.child == "other")
    allowed = arguments.math == "tf32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.manual_seed(1)
    layout = torch.channels_last if arguments.layout == "nhwc" else torch.contiguous_format
    dtype = torch.bfloat16 if arguments.math == "bf16" else torch.float32
    model = network(torch, arguments.model).train().to("cuda", dtype, memory_format=layout)
    images = torch.randn(arguments.batch, 3, IMAGE, IMAGE, device="cuda").to(dtype, memory_format=layout)
    labels = torch.randint(CLASSES, (arguments.batch,), device="cuda")
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    loss_function = torch.nn.CrossEntropyLoss()

    def step():
        loss = loss_function(model(images).float(), labels)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss.detach()

    torch.cuda.synchronize()
    start = time.perf_counter()
    losses = [step()]
    torch.cuda.synchronize()
    first_ms = 1e3 * (time.perf_counter() - start)
    losses += [step() for _ in range(max(arguments.losses, 5) - 1)]
    torch.cuda.reset_peak_memory_stats()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(arguments.steps + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return {
        "steps_ms": [start.elapsed_time(end) for start, end in zip(events, events[1:])],
        "first_ms": first_ms,
        "losses": [loss.item() for loss in losses[: arguments.losses]],
        "peak_mib": torch.cuda.max_memory_allocated() / 2**20,
        "about": f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}",
    }


def run(arguments, is_preloaded, report, algorithms="same"):
    environment = dict(os.environ)
    if arguments.path == "legacy":
        environment["TORCH_CUDNN_V8_API_DISABLED"] = "1"
    if arguments.cap and arguments.path == "legacy":
        environment["CUDNN_CONV_WSCAP_DBG"] = str(arguments.cap)
    if arguments.cap and arguments.path == "graphs" and is_preloaded:
        environment["UCUDNN_DEFAULT_WORKSPACE_LIMIT"] = f"{arguments.cap}MiB"
    if is_preloaded:
        environment |= {"LD_PRELOAD": str(arguments.library.resolve()), "MICROBATCH_REPORT": str(report)}
        environment.setdefault("UCUDNN_DATABASE", "none")
    command = [sys.executable, __file__, "--child", algorithms, *sys.argv[1:]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    sys.stderr.write(done.stderr)
    if done.returncode:
        sys.exit(f"{'with' if is_preloaded else 'without'} the library the training ended with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def apart(a, b):
    """The largest difference of two lists of losses, as a part of the loss."""
    return max(abs(x - y) / max(abs(x), abs(y), 1e-30) for x, y in zip(a, b, strict=True))


def main():
    arguments = parse_arguments()
    if arguments.child:
        print(json.dumps(child(arguments)))
        return
    if not arguments.library.exists():
        sys.exit(f"{arguments.library} is not there: cargo build --release -p microbatch-preload, or --library FILE")
    runs = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.txt"
        for _ in range(arguments.rounds):
            for is_preloaded in runs:
                runs[is_preloaded].append(run(arguments, is_preloaded, report))
        got = report.read_text() if report.exists() else ""
        other = run(arguments, False, report, "other")["losses"]
    settings = f"{arguments.model} {arguments.batch} {arguments.math} {arguments.layout}, {arguments.path}, cap {arguments.cap} MiB"
    print(f"{settings}, {'Get' if arguments.no_benchmark else 'Find'}; {runs[False][0]['about']}")
    medians = {}
    for is_preloaded, ours in runs.items():
        steps = [ms for one in ours for ms in one["steps_ms"]]
        medians[is_preloaded] = statistics.median(steps)
        print(
            f"{'with' if is_preloaded else 'without':8} median {medians[is_preloaded]:8.2f} ms   min {min(steps):8.2f} ms   "
            f"first step {ours[0]['first_ms']:8.0f} ms   peak {ours[0]['peak_mib']:7.0f} MiB   "
            f"loss {ours[0]['losses'][0]:.6f} ... {ours[0]['losses'][-1]:.6f}"
        )
    without, preloaded = runs[False][0]["losses"], runs[True][0]["losses"]
    divided = got.count("  got: ") - got.count("  got: cuDNN's own")
    print(
        f"with / without {medians[True] / medians[False]:.3f}   {divided} of {got.count('  got: ')} convolutions in micro-batches"
        f"   losses of {len(without)} steps differ by {apart(without, preloaded):.1e},"
        f" without the library and with other algorithms by {apart(without, other):.1e}"
    )
    if arguments.report:
        print(got)


if __name__ == "__main__":
    main()
