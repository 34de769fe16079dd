#!/usr/bin/env python3
"""Solves WD's ILPs with GLPK, the solver of the µ-cuDNN paper, and checks its optimum against ours.

    cargo bench --bench planner -- --write-lp target/lp
    python3 benches/peers/glpk/solve.py target/lp

Needs `glpsol` (Debian: glpk-utils). Times are the median wall time of five runs of the program; the first line, an ILP
of one variable, is what starting it costs.
"""

import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

TRIVIAL = "\\ optimum 1.0 ms\nMinimize\n time: x\nSubject To\n one: x = 1\nBinary\n x\nEnd\n"


def solve(program: pathlib.Path) -> tuple[float, float]:
    """Wall time in ms and optimum of one run."""
    with tempfile.NamedTemporaryFile(suffix=".sol") as solution:
        start = time.perf_counter()
        command = ["glpsol", "--lp", str(program), "-o", solution.name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
        elapsed_ms = (time.perf_counter() - start) * 1e3
        report = pathlib.Path(solution.name).read_text()
    if "INTEGER OPTIMAL" not in report:
        sys.exit(f"{program.name}: glpsol proved no optimum")
    return elapsed_ms, float(re.search(r"Objective:\s+time = (\S+)", report)[1])


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    programs = sorted(folder.glob("*.lp"))
    if not programs:
        sys.exit(f"{folder} has no .lp files: write them with the planner benchmark first")
    with tempfile.TemporaryDirectory() as scratch:
        trivial = pathlib.Path(scratch) / "(start of the program)"
        trivial.write_text(TRIVIAL)
        print(f"{'ILP':<28} {'glpsol, ms':>10} {'optimum, ms':>14} {'ours, ms':>14}")
        for program in [trivial, *programs]:
            runs = [solve(program) for _ in range(5)]
            ours = float(re.match(r"\\ optimum (\S+) ms", program.read_text())[1])
            optimum = runs[0][1]
            print(f"{program.stem:<28} {statistics.median(t for t, _ in runs):>10.1f} {optimum:>14.6f} {ours:>14.6f}")
            # glpsol prints nine digits.
            if abs(optimum - ours) > 1e-7 * ours:
                sys.exit(f"{program.name}: the optima differ")


if __name__ == "__main__":
    main()
