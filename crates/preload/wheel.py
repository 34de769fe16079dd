#!/usr/bin/env python3
"""Packs libmicrobatch_cudnn.so into a wheel that pip installs; needs no network.

    cargo build --release -p microbatch-preload
    python3 crates/preload/wheel.py
    pip install target/wheel/microbatch_cudnn-*.whl

It brings the command `microbatch-run PROGRAM [ARGUMENT]...` and the package `microbatch_cudnn`, whose LIBRARY is the path.
"""

import argparse
import base64
import hashlib
import re
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PACKAGE = '''"""Micro-batching of the convolutions of unmodified programs: `microbatch-run python train.py`."""

import os
import sys
from pathlib import Path

LIBRARY = Path(__file__).resolve().with_name("libmicrobatch_cudnn.so")


def main():
    """Becomes the program that the command line names, under the library."""
    if len(sys.argv) < 2:
        sys.exit("usage: microbatch-run PROGRAM [ARGUMENT]...")
    os.environ["LD_PRELOAD"] = ":".join(filter(None, [str(LIBRARY), os.environ.get("LD_PRELOAD")]))
    os.environ.setdefault("MICROBATCH_REPORT", "-")
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        sys.exit(f"microbatch-run: cannot run {sys.argv[1]}: {error.strerror}")
'''

METADATA = """Metadata-Version: 2.1
Name: microbatch-cudnn
Version: {version}
Summary: Micro-batching of the convolutions of unmodified programs that use cuDNN
License: MIT OR Apache-2.0
Requires-Python: >=3.8
Description-Content-Type: text/markdown

"""


def arguments():
    parser = argparse.ArgumentParser(description="Packs libmicrobatch_cudnn.so into a wheel")
    parser.add_argument("--library", type=Path, default=ROOT / "target/release/libmicrobatch_cudnn.so")
    parser.add_argument("--out", type=Path, default=ROOT / "target/wheel", metavar="FOLDER")
    return parser.parse_args()


def main():
    options = arguments()
    if not options.library.is_file():
        raise SystemExit(f"{options.library} is not there: cargo build --release -p microbatch-preload, or --library FILE")
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    name, platform = f"microbatch_cudnn-{version}", re.sub(r"[-.]", "_", sysconfig.get_platform())
    info = f"{name}.dist-info"
    tag = f"Wheel-Version: 1.0\nGenerator: microbatch\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n"
    about = METADATA.format(version=version) + (ROOT / "crates/preload/README.md").read_text()
    files = {
        "microbatch_cudnn/__init__.py": PACKAGE.encode(),
        "microbatch_cudnn/__main__.py": b"from microbatch_cudnn import main\n\nmain()\n",
        "microbatch_cudnn/libmicrobatch_cudnn.so": options.library.read_bytes(),
        f"{info}/METADATA": about.encode(),
        f"{info}/WHEEL": tag.encode(),
        f"{info}/entry_points.txt": b"[console_scripts]\nmicrobatch-run = microbatch_cudnn:main\n",
    }
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    options.out.mkdir(parents=True, exist_ok=True)
    wheel = options.out / f"{name}-py3-none-{platform}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            # A fixed date: the same library gives the same wheel.
            entry = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    print(wheel)


if __name__ == "__main__":
    main()
