#!/usr/bin/env python3
"""Time a training step of PyTorch on the CPU: forward, backward and SGD with momentum and weight decay.

    python benches/peers/pytorch.py --model alexnet --batch 32 --threads 2
    python benches/peers/pytorch.py --model resnet18 --convs

A step runs in several *ways*, each a sum of the settings a user can make without changing the model:

    default         as installed
    channels_last   activations and filters in NHWC, oneDNN's preferred layout
    malloc          glibc keeps freed memory instead of returning it to the system, which otherwise gives back the pages
                    of every large output and faults them in anew in the next step
    fused           the optimiser's fused kernel

Every way runs in a process of its own, because glibc reads its settings at start-up. Inputs are synthetic and made once.
Columns: the least and the median time of a step, the medians of its two parts, and page faults per step, which show
whether `malloc` took hold.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time

DEFAULT_WAYS = ["default", "channels_last", "malloc", "channels_last+malloc", "channels_last+malloc+fused"]
SETTINGS = {"channels_last", "malloc", "fused"}
BATCHES = {"alexnet": 32, "resnet18": 16, "resnet50": 8}
# Our nets of the same structure: `models/resnet18` and `resnet50` are NVIDIA Caffe's, with less arithmetic.
OURS = {
    "alexnet": "alexnet",
    "densenet121": "densenet121",
    "googlenet": "googlenet_torchvision",
    "resnet18": "resnet18_torchvision",
    "resnet50": "resnet50_v1_5",
    "vgg16": "vgg16",
}
# A threshold no allocation reaches: nothing is mapped and unmapped by itself, nor is the heap's top trimmed.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(16 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
WARM_UP_STEPS = 3
TARGET_SECONDS = 10.0
IMAGE, CLASSES = 224, 1000


def parse_arguments():
    parser = argparse.ArgumentParser(description="PyTorch's training step on the CPU, in milliseconds")
    parser.add_argument("--model", choices=sorted(BATCHES), default="alexnet")
    parser.add_argument("--batch", type=int, help="mini-batch (default: 32, 16 and 8 for alexnet, resnet18, resnet50)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, help="timed steps (default: about 10 s of them)")
    parser.add_argument("--quick", action="store_true", help="3 steps: does it run?")
    parser.add_argument("--way", action="append", help="settings joined by '+', or default; may be repeated")
    parser.add_argument("--convs", action="store_true", help="time every kernel of the model's convolutions instead")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for way in arguments.way or []:
        if unknown := set(way.split("+")) - SETTINGS - {"default"}:
            parser.error(f"--way {way}: unknown setting {', '.join(sorted(unknown))}")
    for name in ("batch", "threads", "steps"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            parser.error(f"--{name} {value}: must be at least 1")
    arguments.batch = arguments.batch or BATCHES[arguments.model]
    arguments.steps = 3 if arguments.quick else arguments.steps
    return arguments


def child_environment(way, threads):
    """The environment of the process that runs `way`, free of settings that belong to other ways."""
    environment = {name: value for name, value in os.environ.items() if name not in MALLOC}
    environment["OMP_NUM_THREADS"] = str(threads)
    return environment | (MALLOC if "malloc" in way.split("+") else {})


def in_child(arguments, way):
    """Runs this script for one way and returns the JSON objects it prints."""
    command = [sys.executable, __file__, "--child", "--json", "--way", way, "--model", arguments.model]
    command += ["--batch", str(arguments.batch), "--threads", str(arguments.threads)]
    command += ["--steps", str(arguments.steps)] if arguments.steps else []
    command += ["--convs"] if arguments.convs else []
    environment = child_environment(way, arguments.threads)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def processor():
    """The processor's name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def identity(arguments):
    """What a measurement belongs to."""
    import torch
    import torchvision

    return {
        "model": arguments.model,
        "batch": arguments.batch,
        "threads": arguments.threads,
        "way": arguments.way[0],
        "processor": processor(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
    }


def make_model(arguments):
    """The model in training mode and a mini-batch, in the layout of the way."""
    import torch
    import torchvision

    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    model = getattr(torchvision.models, arguments.model)(weights=None, num_classes=CLASSES).train()
    images = torch.randn(arguments.batch, 3, IMAGE, IMAGE)
    if "channels_last" in arguments.way[0].split("+"):
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    return model, images, torch.randint(CLASSES, (arguments.batch,))


def make_step(arguments):
    """A function that makes one step and returns the seconds of (forward and backward, update)."""
    import torch

    model, images, labels = make_model(arguments)
    fused = True if "fused" in arguments.way[0].split("+") else None
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, fused=fused)
    loss_function = torch.nn.CrossEntropyLoss()

    def step():
        start = time.perf_counter()
        loss_function(model(images), labels).backward()
        middle = time.perf_counter()
        optimiser.step()
        # Freeing the gradients belongs to the update: PyTorch replaces them in the next step.
        optimiser.zero_grad()
        return middle - start, time.perf_counter() - middle

    return step


def time_steps(arguments):
    """Times steps after a warm-up; as many as fill the target unless a number was asked for."""
    step = make_step(arguments)
    warm_up = [sum(step()) for _ in range(WARM_UP_STEPS)]
    steps = arguments.steps or max(5, round(TARGET_SECONDS / min(warm_up)))
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    times = [[1e3 * part for part in step()] for _ in range(steps)]
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    both = [sum(parts) for parts in times]
    return identity(arguments) | {
        "min_ms": min(both),
        "median_ms": statistics.median(both),
        "forward_backward_ms": [parts[0] for parts in times],
        "update_ms": [parts[1] for parts in times],
        "page_faults_per_step": faults / steps,
    }


def convolution_inputs(model, images):
    """Every convolution of `model` in order, by name, with a random input of the shape and layout it sees."""
    import torch

    found = []

    def remember(name):
        return lambda layer, inputs, _: found.append((name, layer, torch.randn_like(inputs[0])))

    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.register_forward_hook(remember(name))
    with torch.no_grad():
        model(images)
    return found


def kernels(layer, x):
    """The three operations of a convolution, without bias, as functions of no arguments."""
    import torch

    w = layer.weight.detach()
    stride, padding, dilation, groups = layer.stride, layer.padding, layer.dilation, layer.groups
    dy = torch.randn_like(torch.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups))

    def backward(*mask):
        arguments = (dy, x, w, None, stride, padding, dilation, False, [0, 0], groups, [*mask, False])
        return lambda: torch.ops.aten.convolution_backward(*arguments)

    return {
        "Forward": lambda: torch.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups),
        "BackwardData": backward(True, False),
        "BackwardFilter": backward(False, True),
    }


def time_convolutions(arguments):
    """Yields the time of every kernel of every distinct convolution (some of a ResNet's are alike)."""
    import torch

    seen = set()
    for index, (name, layer, x) in enumerate(convolution_inputs(*make_model(arguments)[:2])):
        shape = (tuple(x.shape), tuple(layer.weight.shape), layer.stride)
        if shape in seen:
            continue
        seen.add(shape)
        for op, run in kernels(layer, x).items():
            if index == 0 and op == "BackwardData":
                continue  # Training never asks for the gradient of the images.
            times = []
            with torch.no_grad():
                run()
                for _ in range(arguments.steps or 10):
                    start = time.perf_counter()
                    run()
                    times.append(1e3 * (time.perf_counter() - start))
            times = {"min_ms": min(times), "median_ms": statistics.median(times)}
            yield identity(arguments) | {"layer": name, "op": op, "x": list(x.shape), "w": list(layer.weight.shape)} | times


def print_step(result):
    forward_backward, update = (statistics.median(result[key]) for key in ("forward_backward_ms", "update_ms"))
    print(
        f"{result['way']:28} min {result['min_ms']:8.1f} ms   median {result['median_ms']:8.1f} ms"
        f"   forward-backward {forward_backward:8.1f}   update {update:6.1f}"
        f"   {result['page_faults_per_step']:9.0f} page faults",
        flush=True,
    )


def print_convolution(result):
    print(
        f"{result['way']:22} {result['layer']:24} {result['op']:14} min {result['min_ms']:8.2f} ms"
        f"   median {result['median_ms']:8.2f} ms",
        flush=True,
    )


def main():
    arguments = parse_arguments()
    if arguments.child:
        results = time_convolutions(arguments) if arguments.convs else [time_steps(arguments)]
        for result in results:
            print(json.dumps(result), flush=True)
        return
    # The optimiser is no part of a convolution.
    ways = arguments.way or [way for way in DEFAULT_WAYS if not (arguments.convs and "fused" in way)]
    for way in ways:
        for result in in_child(arguments, way):
            if arguments.json:
                print(json.dumps(result), flush=True)
            else:
                (print_convolution if arguments.convs else print_step)(result)


if __name__ == "__main__":
    main()
