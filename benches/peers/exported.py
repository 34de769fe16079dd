#!/usr/bin/env python3
"""Do PyTorch and ONNX Runtime compute with our exported files what torchvision's models compute?

    cargo build --release
    pip install torch torchvision onnx onnxruntime safetensors
    python benches/peers/exported.py
    python benches/peers/exported.py --model vgg16 --microbatch target/debug/microbatch

For each model: torchvision makes weights and running statistics from a seed and saves its state dict; `microbatch export` reads
that and writes a state dict and an ONNX file; the first has to load strictly and be the same bit by bit, and ONNX Runtime has to
give the same logits, within 1e-4 of the largest, for images whose channels are in our order, blue, green, red.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = {
    "alexnet": "alexnet",
    "vgg16": "vgg16",
    "resnet18_torchvision": "resnet18",
    "resnet50_v1_5": "resnet50",
    "googlenet_torchvision": "googlenet",
    "densenet121": "densenet121",
}
TOLERANCE = 1e-4


def parse_arguments():
    parser = argparse.ArgumentParser(description="our exported files in PyTorch and ONNX Runtime")
    parser.add_argument("--model", action="append", choices=sorted(MODELS), help="may be repeated (default: all)")
    parser.add_argument("--microbatch", type=Path, default=ROOT / "target" / "release" / "microbatch")
    return parser.parse_args()


def make_model(name):
    """A model whose batch norms have statistics that are not those of a fresh one."""
    import torch
    import torchvision

    torch.manual_seed(1)
    options = {"aux_logits": False, "init_weights": True} if name == "googlenet" else {}
    model = getattr(torchvision.models, name)(weights=None, **options).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.2, 0.2)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.2, 0.2)
    return model


def check(ours, name, microbatch, folder):
    """The largest distance of ONNX Runtime's logits from torchvision's, relative to the largest of these."""
    import onnx
    import onnxruntime
    import safetensors.torch
    import torch

    model = make_model(name)
    expected = {key: value for key, value in model.state_dict().items() if value.dtype == torch.float32}
    source, state, graph = folder / "source.safetensors", folder / "state.safetensors", folder / "net.onnx"
    safetensors.torch.save_file(model.state_dict(), source)
    for target, out in [("torchvision", state), ("onnx", graph)]:
        command = [microbatch, "export", "--model", ROOT / "models" / ours / "net.prototxt", "--weights", source]
        subprocess.run([*command, "--to", target, "--out", out], check=True, stdout=subprocess.DEVNULL)
    found = safetensors.torch.load_file(state)
    model.load_state_dict(found, strict=True)
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected), "weights differ"
    onnx.checker.check_model(str(graph), full_check=True)
    images = torch.randn(3, 3, 224, 224)
    with torch.no_grad():
        logits = model(images).numpy()
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    (input_,) = session.get_inputs()
    (output,) = session.run(None, {input_.name: images.flip(1).contiguous().numpy()})
    return float(abs(output - logits).max() / abs(logits).max())


def main():
    arguments = parse_arguments()
    failed = False
    for ours in arguments.model or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            distance = check(ours, MODELS[ours], arguments.microbatch, Path(folder))
        failed |= not distance <= TOLERANCE
        print(f"{ours:24}state dict equal   logits differ by {distance:.1e} of the largest", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
