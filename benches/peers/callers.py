#!/usr/bin/env python3
"""What other programs that use cuDNN do under libmicrobatch_cudnn.so, on a GPU.

    cargo build --release -p microbatch-preload
    python benches/peers/callers.py

Each caller runs in processes of its own, without the library and with it: a few steps of a small net with convolutions of
64 channels over 128 samples. A line for each says how many convolutions came by, how many calls ran in micro-batches, how far
its numbers are from those without the library, and whether it ended well.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "target/release/libmicrobatch_cudnn.so"
BATCH, CHANNELS, SIZE, STEPS = 128, 64, 56, 5


def pytorch(change, capture=False):
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)
    layers = [layer for _ in range(3) for layer in (torch.nn.Conv2d(CHANNELS, CHANNELS, 5, padding=2), torch.nn.ReLU())]
    net = change(torch, torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).cuda())
    images = torch.randn(BATCH, CHANNELS, SIZE, SIZE, device="cuda")
    optimiser = torch.optim.SGD(net.parameters(), lr=1e-2)

    def step():
        optimiser.zero_grad()
        loss = net(images).square().sum()
        loss.backward()
        optimiser.step()
        return loss.detach()

    losses = [step().item() for _ in range(STEPS)]
    if capture:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
        for _ in range(STEPS):
            graph.replay()
            losses.append(loss.item())
    return losses


def jax():
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(1), 4)
    weights = [0.02 * jax.random.normal(key, (5, 5, CHANNELS, CHANNELS)) for key in keys[:3]]
    images = jax.random.normal(keys[3], (BATCH, SIZE, SIZE, CHANNELS))

    def loss(weights):
        x = images
        for w in weights:
            layout = ("NHWC", "HWIO", "NHWC")
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout, precision="highest"))
        return jnp.square(x.mean((1, 2))).sum()

    step = jax.jit(jax.value_and_grad(loss))
    losses = []
    for _ in range(STEPS):
        value, gradients = step(weights)
        weights = [w - 1e-3 * g for w, g in zip(weights, gradients)]
        losses.append(float(value))
    return losses


CALLERS = {
    "PyTorch": lambda: pytorch(lambda torch, net: net),
    "PyTorch, DataParallel over all GPUs": lambda: pytorch(lambda torch, net: torch.nn.DataParallel(net)),
    "PyTorch, a step as a CUDA graph": lambda: pytorch(lambda torch, net: net, capture=True),
    "torch.compile": lambda: pytorch(lambda torch, net: torch.compile(net)),
    "torch.compile, max-autotune": lambda: pytorch(lambda torch, net: torch.compile(net, mode="max-autotune-no-cudagraphs")),
    "JAX": jax,
}


def start(name, **environment):
    command = [sys.executable, __file__, name]
    return subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def losses(process):
    out, errors = process.communicate()
    if process.returncode:
        return None, f"status {process.returncode}: {(errors.strip().splitlines() or [''])[-1][:120]}"
    return json.loads(out.splitlines()[-1]), "ended well"


def main():
    if len(sys.argv) > 1:
        print(json.dumps(CALLERS[sys.argv[1]]()))
        return
    if not LIBRARY.exists():
        sys.exit(f"{LIBRARY} is not there: cargo build --release -p microbatch-preload")
    print("| caller | convolutions seen | calls in micro-batches | losses apart | |\n| --- | --- | --- | --- | --- |")
    for name in [*CALLERS, "PyTorch, two processes at once"]:
        caller, count = (name, 1) if name in CALLERS else ("PyTorch", 2)
        without, _ = losses(start(caller))
        with tempfile.TemporaryDirectory() as folder:
            reports = [Path(folder) / f"{number}.txt" for number in range(count)]
            settings = {"LD_PRELOAD": str(LIBRARY), "UCUDNN_DATABASE": folder, "UCUDNN_DEFAULT_WORKSPACE_LIMIT": "64MiB"}
            running = [start(caller, MICROBATCH_REPORT=str(report), **settings) for report in reports]
            for process, report in zip(running, reports):
                ours, end = losses(process)
                text = report.read_text() if report.exists() else ""
                seen, calls = text.count("  got: "), sum(int(calls) for calls in re.findall(r"  calls: (\d+)", text))
                apart = "" if not (ours and without) else f"{max(abs(a - b) / abs(b) for a, b in zip(ours, without)):.1e}"
                print(f"| {name} | {seen} | {calls} | {apart} | {end} |", flush=True)


if __name__ == "__main__":
    main()
