#!/usr/bin/env python3
"""Writes torchvision_logits.json: logits of torchvision's models for weights and images from formulas.

    pip install torch torchvision
    python crates/trainer/tests/golden/torchvision_logits.py

crates/trainer/tests/torchvision.rs makes the same weights and images, and compares our logits. Of each model the file has the
number of tensors in its state dict (without the counters of batches), a digest of their names and shapes, and the first few
logits of each of two images.
"""

import json
import math
from pathlib import Path

import numpy as np
import torch
import torchvision

# Our net, torchvision's model, and the side of the images.
MODELS = [
    ("alexnet", "alexnet", 224),
    ("resnet18_torchvision", "resnet18", 64),
    ("resnet50_v1_5", "resnet50", 64),
    ("googlenet_torchvision", "googlenet", 64),
    ("densenet121", "densenet121", 64),
]
LOGITS = 12
IMAGES = 2


def numbers(name, count):
    """Numbers from -1 to 1 in steps of 2^-23, mixed from the place and the name's FNV-1a."""
    seed = 0x811C9DC5
    for byte in name.encode():
        seed = (seed ^ byte) * 0x01000193 & 0xFFFFFFFF
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(seed)
        for shift, factor in [(16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)]:
            x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return (x >> np.uint32(8)).astype(np.float64) / 2**23 - 1


def weights(name, shape):
    """He's uniform distribution for a filter, and what keeps a batch norm near the identity."""
    values = numbers(name, math.prod(shape))
    if len(shape) > 1:
        values = values * math.sqrt(6 / math.prod(shape[1:]))
    elif name.endswith("running_var"):
        values = 1 + 0.5 * values
    elif name.endswith("weight"):
        values = 1 + 0.2 * values
    else:
        values = 0.1 * values
    return values.astype(np.float32).reshape(shape)


def images(side):
    """Red, green and blue from 0 to 1 in steps of 1/255."""
    pixels = (numbers("images", IMAGES * 3 * side * side) + 1) * 128
    return (np.floor(pixels).astype(np.float32) * np.float32(1 / 255)).reshape(IMAGES, 3, side, side)


def golden(model, side):
    options = {"aux_logits": False, "init_weights": False} if model == "googlenet" else {}
    net = getattr(torchvision.models, model)(weights=None, **options).eval()
    state = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items() if tensor.dtype == torch.float32}
    net.load_state_dict({name: torch.from_numpy(weights(name, shape)) for name, shape in state.items()}, strict=False)
    digest = 0xCBF29CE484222325
    for byte in "".join(f"{name} {list(state[name])}\n" for name in sorted(state)).encode():
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    with torch.no_grad():
        logits = net(torch.from_numpy(images(side)))
    scale = float(logits.abs().max())
    return {"side": side, "tensors": len(state), "digest": f"{digest:016x}", "largest": scale, "logits": logits[:, :LOGITS].tolist()}


def main():
    torch.set_num_threads(2)
    file = Path(__file__).with_suffix(".json")
    models = {ours: golden(model, side) for ours, model, side in MODELS}
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    file.write_text(json.dumps({"versions": versions, "models": models}, indent=1) + "\n")


if __name__ == "__main__":
    main()
