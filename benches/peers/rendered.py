#!/usr/bin/env python3
"""ResNet-18 on rendered images: trained by us and by PyTorch with one recipe, and fine-tuned from PyTorch's weights.

    cargo build --release
    python benches/peers/rendered.py --device cuda --out rendered

Both sides read the lists of images that `microbatch init` writes, and train torchvision's ResNet-18 as its solver file says:
random areas of the images, mirrored or not, SGD with momentum and weight decay, a rate that falls to 0 in a straight line. Random
numbers differ, so there are several seeds; on a GPU ours learns in BF16, too, as does LeNet on the digits. Then PyTorch learns the first half of the classes, and its weights go into a training
on 2,000 images of the other half, beside one from scratch of as many iterations. Leaves in the folder the logs of all trainings,
curves, and a table (`README.md`). PyTorch holds all images on the device; its augmentation runs there.
"""

import argparse
import json
import math
import re
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# How ours is told to compute in BF16.
BF16 = ["--dtype", "bf16", "--layout", "nhwc"]
# What models/resnet18_torchvision subtracts and divides by, in the order red, green, blue.
TORCHVISION = ([123.675, 116.28, 103.53], [1 / 0.0174] * 3)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--per-class", type=int, default=600)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tuned-images", type=int, default=2000)
    parser.add_argument("--tuned-epochs", type=int, default=15)
    parser.add_argument("--math", default="tf32", choices=["fp32", "tf32"])
    parser.add_argument("--out", type=Path, default=Path("rendered"))
    parser.add_argument("--microbatch", type=Path, default=ROOT / "target/release/microbatch")
    parser.add_argument("--pytorch", type=Path, nargs=2, metavar=("TASK", "LOG"), help="train as the folder's files say, by PyTorch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path, help="write PyTorch's weights there")
    return parser.parse_args()


# PyTorch's side.


def read_images(torch, task, name):
    """All images of a list as bytes (sample, channel, row, column), and their labels."""
    from torchvision.io import ImageReadMode, read_image

    root = Path(re.search(r'root_folder: "([^"]*)"', (task / "net.prototxt").read_text())[1])
    lines = [line.rsplit(" ", 1) for line in (task / f"{name}.txt").read_text().splitlines()]
    with ThreadPoolExecutor() as pool:
        images = list(pool.map(lambda line: read_image(str(root / line[0]), ImageReadMode.RGB), lines))
    return torch.stack(images), torch.tensor([int(label) for _, label in lines])


def statistics_of(task):
    """Mean and deviation in the order red, green, blue, from the net, which has blue first."""
    net = (task / "net.prototxt").read_text()
    block = net[: net.index("image_data_param")]
    means, stds, scale = (re.findall(rf"{field}: ([0-9.e-]+)", block) for field in ("mean_value", "std_value", "scale"))
    if scale:
        return TORCHVISION
    return [float(value) for value in means[::-1]], [float(value) for value in stds[::-1]]


def random_areas(torch, images, least=0.25, aspect=4 / 3, attempts=10):
    """Parts of at least a quarter of each image's area, mirrored or not, in the images' size.

    As torchvision's RandomResizedCrop and we do, a part that does not fit into the image is drawn again, so that large ones are
    rarer; the whole image if none has fitted.
    """
    count, draw = len(images), lambda *more: torch.rand(*more, len(images), device=images.device)
    area, ratio = least + (1 - least) * draw(attempts), torch.exp((2 * draw(attempts) - 1) * math.log(aspect))
    sides = torch.stack([(area / ratio).sqrt(), (area * ratio).sqrt()])
    fits = (sides <= 1).all(0)
    first = fits.int().argmax(0)
    height, width = torch.where(fits.any(0), sides[:, first, torch.arange(count, device=images.device)], 1.0)
    middle = [(2 * draw() - 1) * (1 - side) for side in (width, height)]
    turn = torch.where(draw() < 0.5, -1.0, 1.0)
    zero = torch.zeros(count, device=images.device)
    places = torch.stack([width * turn, zero, middle[0], zero, height, middle[1]], 1).reshape(count, 2, 3)
    grid = torch.nn.functional.affine_grid(places, list(images.shape), align_corners=False)
    return torch.nn.functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def middles(torch, images, size):
    """The middle of each image enlarged by an eighth, as a test of ours sees it."""
    larger = size * 8 // 7
    images = torch.nn.functional.interpolate(images, (larger, larger), mode="bilinear", align_corners=False)
    edge = (larger - size) // 2
    return images[:, :, edge : edge + size, edge : edge + size]


def train_by_pytorch(args):
    import torch
    import torchvision

    task, log = args.pytorch
    solver = dict(re.findall(r"^(\w+): (\S+)", (task / "solver.prototxt").read_text(), re.MULTILINE))
    torch.manual_seed(args.seed)
    allowed = args.math == "tf32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.benchmark = True
    (pixels, labels), (test_pixels, test_labels) = (
        [part.to(args.device) for part in read_images(torch, task, name)] for name in ("train", "val")
    )
    mean, std = (torch.tensor(values, device=args.device).reshape(1, 3, 1, 1) for values in statistics_of(task))
    iterations, display = int(solver["max_iter"]), int(solver["display"])
    batch = int(re.search(r"batch_size: (\d+)", (task / "net.prototxt").read_text())[1])
    rate, size = float(solver["base_lr"]), pixels.shape[-1]
    net = torchvision.models.resnet18(num_classes=int(labels.max()) + 1).to(args.device).train()
    optimiser = torch.optim.SGD(net.parameters(), lr=rate, momentum=float(solver["momentum"]), weight_decay=float(solver["weight_decay"]))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / iterations)
    loss_function, seconds, last = torch.nn.CrossEntropyLoss(), 0.0, torch.cuda.synchronize if args.device == "cuda" else lambda: None
    order, lines = torch.empty(0, dtype=torch.long, device=args.device), []

    def test(iteration):
        net.eval()
        with torch.no_grad():
            scores = [net((middles(torch, part.float(), size) - mean) / std) for part in test_pixels.split(500)]
        scores = torch.cat(scores)
        right = (scores.argmax(1) == test_labels).float().mean().item()
        outputs = [("accuracy/top-1", right, 0.0), ("loss", loss_function(scores, test_labels).item(), 1.0)]
        outputs = [{"name": name, "values": [value], "loss_weight": weight} for name, value, weight in outputs]
        lines.append({"kind": "test", "iteration": iteration, "seconds": seconds, "net": 0, "outputs": outputs})
        net.train()

    for iteration in range(iterations):
        if iteration and iteration % int(solver.get("test_interval", iterations)) == 0:
            test(iteration)
        start = time.perf_counter()
        if len(order) < batch:
            order = torch.cat([order, torch.randperm(len(labels), device=args.device)])
        chosen, order = order[:batch], order[batch:]
        optimiser.zero_grad()
        loss = loss_function(net((random_areas(torch, pixels[chosen].float()) - mean) / std), labels[chosen])
        loss.backward()
        optimiser.step()
        schedule.step()
        if iteration % display == 0:
            last()
        seconds += time.perf_counter() - start
        if iteration % display == 0:
            line = {"kind": "display", "iteration": iteration, "seconds": seconds, "smoothed_loss": loss.item(), "outputs": []}
            lines.append(line)
    start = time.perf_counter()
    last()
    seconds += time.perf_counter() - start
    test(iterations)
    manifest = {"kind": "manifest", "iteration": 0, "torch": torch.__version__, "seed": args.seed, "math": args.math}
    log.write_text("".join(json.dumps(line) + "\n" for line in [manifest, *lines]))
    if args.save:
        save(args.save, net.state_dict())


def save(path, state):
    """A state dict as safetensors."""
    values = {name: value.detach().cpu().contiguous() for name, value in state.items() if value.is_floating_point()}
    save_bytes(path, {name: (list(value.shape), value.numpy().tobytes()) for name, value in values.items()})


def save_bytes(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# The trainings.


def run(args, *command):
    return subprocess.run([str(part) for part in (args.microbatch.resolve(), *command)], stdout=subprocess.PIPE, text=True, check=True).stdout


def init(args, task, data, epochs, batch, seed, *more):
    command = ["--data", data.resolve(), "--like", "resnet18_torchvision", "--size", args.size, "--batch", batch, "--epochs", epochs]
    run(args, "init", args.out / task, *command, "--seed", seed, *more)
    return args.out / task


def ours(args, task, log, *more):
    command = ["--solver", task / "solver.prototxt", "--no-snapshot", "--log", args.out / log, "--database", args.out / "measured"]
    is_tf32 = args.math == "tf32" and args.device == "cuda" and "bf16" not in more
    run(args, "train", *command, "--device", args.device, *(["--math", "tf32"] if is_tf32 else []), *more)
    return result(args.out / log)


def theirs(args, task, log, seed, *more):
    command = [sys.executable, __file__, "--pytorch", task, args.out / log, "--seed", seed, "--device", args.device, "--math", args.math]
    subprocess.run([str(part) for part in (*command, *more)], check=True)
    return result(args.out / log)


def result(log):
    """The accuracy of the last test, its loss, and the seconds of all iterations."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "test"][-1]
    values = {output["name"]: output["values"][0] for output in last["outputs"]}
    return values.get("accuracy/top-1", values.get("accuracy")), values["loss"], last["seconds"]


def halves(args, shapes):
    """Folders of links: the first half of the classes, and a few images of the others with as many kept for validation."""
    classes = sorted(folder for folder in shapes.iterdir() if folder.is_dir())
    known, unknown = classes[: len(classes) // 2], classes[len(classes) // 2 :]
    each = max(args.tuned_images // len(unknown), 1)
    for folder in known:
        link(args.out / "known" / folder.name, sorted(folder.iterdir()))
    for folder in unknown:
        images = sorted(folder.iterdir())
        link(args.out / "few/train" / folder.name, images[:each])
        link(args.out / "few/val" / folder.name, images[-each:])


def link(folder, images):
    folder.mkdir(parents=True)
    for image in images:
        (folder / image.name).symlink_to(image.resolve())


def compare(args, shapes, rows):
    for seed in range(1, args.seeds + 1):
        task = init(args, f"all{seed}", shapes, args.epochs, args.batch, seed)
        rows.append((f"microbatch, seed {seed}", *ours(args, task, f"microbatch-{seed}.jsonl")))
        if args.device == "cuda":
            rows.append((f"microbatch in BF16, seed {seed}", *ours(args, task, f"bf16-{seed}.jsonl", *BF16)))
        rows.append((f"PyTorch, seed {seed}", *theirs(args, task, f"pytorch-{seed}.jsonl", seed)))
        print(rows[-3:], flush=True)


def digits(args, rows):
    for seed in range(1, args.seeds + 1):
        for math, more in ((args.math.upper(), []), ("BF16", BF16)):
            log = f"lenet-{math}-{seed}.jsonl"
            rows.append((f"LeNet on the digits in {math}, seed {seed}", *ours(args, ROOT / "models/lenet", log, "--seed", seed, *more)))


def tune(args, shapes, rows):
    halves(args, shapes)
    weights = args.out / "known.safetensors"
    # With `--weights` a net keeps torchvision's normalization: so do the weights that it starts from. Any file with a
    # layer of the net will do for that.
    save_bytes(weights, {"conv1.weight": ([64, 3, 7, 7], bytes(4 * 64 * 3 * 7 * 7))})
    known = init(args, "half", args.out / "known", args.epochs, args.batch, 1, "--weights", weights)
    solver = (known / "solver.prototxt").read_text()
    rate = float(re.search(r"base_lr: (\S+)", solver)[1])
    (known / "solver.prototxt").write_text(solver.replace(f"base_lr: {rate:g}", f"base_lr: {10 * rate:g}"))
    rows.append(("PyTorch, half of the classes", *theirs(args, known, "half.jsonl", 1, "--save", weights)))
    few = args.out / "few"
    task = init(args, "scratch", few, args.tuned_epochs, 50, 1)
    rows.append((f"{args.tuned_images} images of the others, from scratch", *ours(args, task, "scratch.jsonl")))
    task = init(args, "tuned", few, args.tuned_epochs, 50, 1, "--weights", weights)
    rows.append(("the same, from PyTorch's weights", *ours(args, task, "tuned.jsonl", "--weights", weights)))
    print(rows[-3:], flush=True)


def main():
    args = arguments()
    if args.pytorch:
        train_by_pytorch(args)
        return
    args.out.mkdir(parents=True)
    shapes, rows = args.out / "shapes", []
    run(args, "data", "render", "--classes", args.classes, "--per-class", args.per_class, "--size", args.size, "--out", shapes)
    compare(args, shapes, rows)
    if args.device == "cuda":
        digits(args, rows)
    tune(args, shapes, rows)
    table = "| training | test accuracy | test loss | seconds of iterations |\n| --- | --- | --- | --- |\n"
    table += "".join(f"| {name} | {100 * right:.1f} % | {loss:.3f} | {seconds:.1f} |\n" for name, right, loss, seconds in rows)
    (args.out / "README.md").write_text(table)
    print(table)
    sides = ["microbatch", "pytorch", *(["bf16"] if args.device == "cuda" else [])]
    # Those of all seeds would hide each other.
    logs = [args.out / f"{side}-1.jsonl" for side in sides]
    for drawing in ["svg", "png"]:
        run(args, "plot", *logs, "--out", args.out / f"resnet18.{drawing}")
        run(args, "plot", args.out / "scratch.jsonl", args.out / "tuned.jsonl", "--out", args.out / f"tuned.{drawing}")


if __name__ == "__main__":
    main()
