#!/usr/bin/env python3
"""Does it matter for learning how convolutions are divided? One net under every pair of policies: losses and times.

    cargo build --release
    python benches/curves.py --device cuda --out curves

Trains `models/cifar10_quick` on images that `microbatch data render` draws, with the same seed each time: undivided, powerOfTwo
and all, under WR with a limit for each kernel, under WD with that much for all kernels together, and under WS with one arena
of that size. Leaves in the folder a log for each (`all-wd.jsonl`), learning curves over iterations and over seconds, a table
(`README.md`), and what each training printed. Needs Python alone, and models/ beside it or above.
"""

import argparse
import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SIZES = ["undivided", "powerOfTwo", "all"]
WORKSPACES = {"wr": "--workspace-limit", "wd": "--total-workspace", "ws": "--total-workspace"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--limit", default="64MiB", help="of each kernel, or of all together")
    parser.add_argument("--iterations", type=int, default=1500)
    # At 0.003 differences of rounding grow until trainings have little in common, undivided ones too.
    parser.add_argument("--rate", type=float, default=0.001)
    parser.add_argument("--per-class", type=int, default=5000, help="images of each of the ten classes")
    parser.add_argument("--out", type=Path, default=Path("curves"))
    parser.add_argument("--microbatch", type=Path, default=ROOT / "target/release/microbatch")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder with models/")
    return parser.parse_args()


def run(args, *command):
    done = subprocess.run([str(part) for part in (args.microbatch.resolve(), *command)], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def write_task(args):
    """Images, lists of them, the net and its solver; the net keeps the normalization that its fillers were chosen for."""
    shapes, task = args.out / "shapes", args.out / "task"
    run(args, "data", "render", "--classes", 10, "--per-class", args.per_class, "--size", 32, "--out", shapes)
    run(args, "init", task, "--data", shapes, "--like", "cifar10_quick", "--size", 32)
    net = (args.root / "models/cifar10_quick/net.prototxt").read_text().replace('type: "Data"', 'type: "ImageData"')
    for name, batch in [("train", f"{args.batch} shuffle: true"), ("val", "500")]:
        images = f'image_data_param {{ source: "{name}.txt" root_folder: "{shapes.resolve()}/" batch_size: {batch} }}'
        net = re.sub(r"\bdata_param \{[^}]*\}", images, net, count=1)
    (task / "net.prototxt").write_text(net)
    tests = len((task / "val.txt").read_text().splitlines()) // 500
    (task / "solver.prototxt").write_text(
        f'net: "net.prototxt" test_iter: {max(tests, 1)} test_interval: {max(args.iterations // 6, 1)} base_lr: {args.rate} lr_policy: "poly" power: 1\n'
        f"momentum: 0.9 weight_decay: 0.004 average_loss: 10 display: 10 max_iter: {args.iterations} snapshot: 0 random_seed: 1\n"
    )
    return task / "solver.prototxt"


def train(args, solver, sizes, workspace):
    """The lines of the log of a training, the manifest first."""
    name = f"{sizes}-{workspace}"
    log = args.out / f"{name}.jsonl"
    policies = ["--policy", sizes, "--workspace-policy", workspace, WORKSPACES[workspace], args.limit]
    where = ["--device", args.device, "--database", args.out / "measured", "--no-snapshot", "--log", log]
    (args.out / f"{name}.txt").write_text(run(args, "train", "--solver", solver, *policies, *where))
    return [json.loads(line) for line in log.read_text().splitlines()]


def row(name, lines, reference):
    """Of a training: the kernels' planned time, what it took, how far its losses are from those of the reference."""
    displayed = [line for line in lines if line["kind"] == "display"]
    last = [line for line in lines if line["kind"] == "test"][-1]
    accuracy = next(output["values"][0] for output in last["outputs"] if output["loss_weight"] == 0)
    apart = max(abs(a["smoothed_loss"] - b["smoothed_loss"]) / b["smoothed_loss"] for a, b in zip(displayed, reference))
    planned, seconds = lines[0]["plan"]["time_ms"], displayed[-1]["seconds"]
    step = 1e3 * (seconds - displayed[1]["seconds"]) / (displayed[-1]["iteration"] - displayed[1]["iteration"])
    loss = displayed[-1]["smoothed_loss"]
    return f"| {name} | {planned:.2f} | {step:.2f} | {seconds:.1f} | {loss:.4f} | {100 * apart:.1f} % | {100 * accuracy:.1f} % |"


def main():
    args = arguments()
    args.out.mkdir(parents=True)
    solver = write_task(args)
    rows, reference = [], None
    for sizes in SIZES:
        for workspace in WORKSPACES:
            lines = train(args, solver, sizes, workspace)
            reference = reference or [line for line in lines if line["kind"] == "display"]
            rows.append(row(f"{sizes}, {workspace.upper()}", lines, reference))
            print(rows[-1], flush=True)
    head = "| policies | kernels, planned ms | step ms | seconds | last loss | losses apart, at most | test accuracy |\n|" + " --- |" * 7
    about = f"{args.iterations} iterations, mini-batch {args.batch}, {args.limit} for each kernel (WR) or for all (WD, WS), {lines[0]['run']['device']['name']}"
    (args.out / "README.md").write_text("\n".join([about, "", head, *rows]) + "\n")
    logs = [args.out / f"{sizes}-{workspace}.jsonl" for sizes in SIZES for workspace in WORKSPACES]
    for drawing in ["svg", "png"]:
        run(args, "plot", *logs, "--out", args.out / f"iterations.{drawing}")
        run(args, "plot", *logs, "--seconds", "--out", args.out / f"seconds.{drawing}")


if __name__ == "__main__":
    main()
