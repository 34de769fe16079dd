#!/usr/bin/env python3
"""Writes pytorch_losses.json: PyTorch's losses of 50 iterations for weights, images and labels from formulas.

    pip install torch torchvision
    python crates/trainer/tests/golden/pytorch_losses.py

crates/trainer/src/solver/tests/pytorch.rs trains the same nets with the same solvers on the same mini-batches and compares every
loss. PyTorch computes in double precision; `drifts` say how far, relative to those, its own losses have been off so far
in single precision, or in double precision with all that convolutions and fully connected layers yield off by about two
roundings of single precision: that tips a maximum over now and then, as another order of sums does.
"""

import json
from pathlib import Path

import numpy as np
import torch
import torchvision
from torch import nn
from torchvision_logits import numbers, weights

ITERATIONS, BATCH, IMAGES, CLASSES, WIDTH, DRAWS = 50, 8, 400, 10, 512, 5
HERE = Path(__file__)
MOMENTUM = {"momentum": 0.9, "weight_decay": 0.0005}
ADAMW = {"momentum": 0.9, "momentum2": 0.999, "delta": 1e-8, "weight_decay": 0.01}


def lenet():
    """As models/lenet, whose convolutions have no nonlinearity behind them."""
    pool = nn.MaxPool2d(2, 2, ceil_mode=True)
    net = nn.Module()
    net.features = nn.Sequential(nn.Conv2d(1, 20, 5), pool, nn.Conv2d(20, 50, 5), pool)
    net.classifier = nn.Sequential(nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, CLASSES))
    net.forward = lambda images: net.classifier(net.features(images).flatten(1))
    return net


def alexnet():
    """torchvision's, without dropout and with narrower classifiers, for images whose last feature map is a single pixel."""
    net = torchvision.models.alexnet(dropout=0.0)
    net.avgpool, net.classifier[1] = nn.Identity(), nn.Linear(256, WIDTH)
    net.classifier[4], net.classifier[6] = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
    return net


# The net, shape of an image, multipliers of a bias's rate and weight decay in models/, and the rate of each solver.
NETS = {
    "lenet": (lenet, [1, 28, 28], (2, 1), {"SGD": 0.003, "Nesterov": 0.003, "AdamW": 0.001}),
    "alexnet": (alexnet, [3, 64, 64], (2, 0), {"SGD": 0.0005, "Nesterov": 0.0005, "AdamW": 0.00001}),
    "resnet18_torchvision": (
        lambda: torchvision.models.resnet18(num_classes=CLASSES),
        [3, 40, 40],
        (1, 1),
        # Batch norm over a few pixels amplifies rounding: at ten times the rates of SGD and Nesterov PyTorch itself
        # drifts by 15 %.
        {"SGD": 0.00005, "Nesterov": 0.00005, "AdamW": 0.00001},
    ),
}


def optimiser(kind, net, rate, fields, bias):
    (lr_mult, decay_mult), decay = bias, fields["weight_decay"]
    named = list(net.named_parameters())
    groups = [
        {"params": [value for name, value in named if not name.endswith("bias")], "lr": rate, "weight_decay": decay},
        {"params": [value for name, value in named if name.endswith("bias")], "lr": rate * lr_mult, "weight_decay": decay * decay_mult},
    ]
    if kind == "AdamW":
        return torch.optim.AdamW(groups, betas=(fields["momentum"], fields["momentum2"]), eps=fields["delta"])
    return torch.optim.SGD(groups, momentum=fields["momentum"], nesterov=kind == "Nesterov")


def round_like_others(net, seed):
    """Moves all that convolutions and fully connected layers yield by about two roundings of single precision."""
    draw, rounding = torch.Generator().manual_seed(seed), 2.0**-24

    def off(layer, inputs, y):
        return y + 2 * rounding * y.detach().abs() * torch.randn(y.shape, generator=draw, dtype=y.dtype)

    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.register_forward_hook(off)


def losses(make, shape, bias, kind, rate, fields, dtype, seed=None):
    net = make().train()
    if seed is not None:
        round_like_others(net, seed)
    state = {name: tuple(value.shape) for name, value in net.state_dict().items() if value.dtype == torch.float32}
    net.load_state_dict({name: torch.from_numpy(weights(name, dims)) for name, dims in state.items()}, strict=False)
    net = net.to(dtype)
    steps = optimiser(kind, net, rate, fields, bias)
    labels = np.floor((numbers("labels", IMAGES) + 1) / 2 * CLASSES)
    # The higher the class, the brighter is the noise.
    pixels = (numbers("images", IMAGES * int(np.prod(shape))).reshape(IMAGES, *shape) + 1) * 8
    pixels = np.floor(pixels * (labels + 6).reshape(-1, 1, 1, 1)) / 256
    images, labels = torch.from_numpy(pixels).to(dtype), torch.from_numpy(labels.astype(np.int64))
    found = []
    for first in (iteration * BATCH % IMAGES for iteration in range(ITERATIONS)):
        loss = nn.functional.cross_entropy(net(images[first : first + BATCH]), labels[first : first + BATCH])
        steps.zero_grad()
        loss.backward()
        steps.step()
        found.append(loss.item())
    return found


def main():
    torch.set_num_threads(2)
    cases, versions = [], {"torch": torch.__version__, "torchvision": torchvision.__version__}
    for model, (make, shape, bias, rates) in NETS.items():
        for kind, rate in rates.items():
            fields = ADAMW if kind == "AdamW" else MOMENTUM
            exact = losses(make, shape, bias, kind, rate, fields, torch.float64)
            others = [losses(make, shape, bias, kind, rate, fields, torch.float32)]
            others += [losses(make, shape, bias, kind, rate, fields, torch.float64, seed) for seed in range(DRAWS)]
            apart = np.max(np.abs(np.array(others) - exact) / exact, axis=0)
            drifts = [float(f"{most:.1e}") for most in np.maximum.accumulate(apart)]
            text = " ".join(f"{name}: {value}" for name, value in fields.items())
            solver = f"type: '{kind}' base_lr: {rate} lr_policy: 'fixed' {text}"
            print(f"{model:22} {kind:9} {exact[0]:.4f} -> {exact[-1]:.4f}, least {min(exact):.4f}, drift {drifts[4]:.1e} {drifts[-1]:.1e}", flush=True)
            case = {"model": model, "shape": shape, "solver": solver, "versions": versions, "drifts": drifts}
            cases.append(case | {"losses": [float(f"{loss:.9g}") for loss in exact]})
    about = {"batch": BATCH, "images": IMAGES, "classes": CLASSES, "width": WIDTH, "cases": cases}
    HERE.with_suffix(".json").write_text(json.dumps(about).replace('{"model"', '\n{"model"') + "\n")


if __name__ == "__main__":
    main()
