#!/usr/bin/env python3
"""Solves the joint plans of small nets as ILPs with HiGHS, and holds ours and its bound against their optimum.

    cargo run --release -p microbatch-memory --example small_nets | venv/bin/python benches/peers/memory_ilp.py

The ILP is derived from outline and costs alone: for every feature map keep, offload (free before which action forward,
coming back before which one backward) or recompute (before which actions backward, up to its own first use there), for
every kernel a point of its front, stalls, and copies in every interval of actions within the time that there is. Its
memory is the sum of what is alive, so that it may be below what can be placed: no plan of ours is faster than its optimum,
and no bound of ours is above it, but for what recomputation within an action's turn makes finer with us than here.
"""

import json
import sys

import highspy

ALIGNMENT = 256
INFINITY = highspy.kHighsInf


def arena(size):
    return -(-size // ALIGNMENT) * ALIGNMENT


class Net:
    """What comes of an outline: feature maps with their uses, units that are computed together, and gradients."""

    def __init__(self, outline):
        self.nodes, self.values = outline["nodes"], outline["values"]
        self.params = [] if outline["keeps_gradients"] else outline["params"]
        # So few that the iteration ends with one update of all.
        assert sum(param["bytes"] for param in outline["params"]) < 2 << 20
        order = range(len(self.nodes))
        self.forward = [n for n in order if not self.nodes[n]["bottoms"]] + [n for n in order if self.nodes[n]["bottoms"]]
        self.backward = [n for n in reversed(order) if self.nodes[n]["backward"]]
        self.tensors, self.units, self.at = [], [], {}
        for at, n in enumerate(self.forward):
            self.visit(at, n)
        for h, n in enumerate(self.backward):
            node = self.nodes[n]
            seen = [("data", self.root(v)) for v in node["bottoms"][: node["read_bottoms"]]]
            seen += [("data", self.root(v)) for v in node["tops"] if node["needs_top"]] + [("saved", n)]
            for i in {self.at[key] for key in seen if key in self.at}:
                self.tensors[i]["back"].append(h)
        for value in self.values:
            if value["output"] and ("data", value["root"]) in self.at:
                tensor = self.tensors[self.at["data", value["root"]]]
                tensor["stays"] = True
                self.units[tensor["unit"]]["repeats"] = False
        largest = max(tensor["bytes"] for tensor in self.tensors)
        for tensor in self.tensors:
            tensor["leaves"] &= tensor["bytes"] >= largest // 1000

    def root(self, value):
        return self.values[value]["root"]

    def visit(self, at, n):
        node = self.nodes[n]
        there = [self.at["data", self.root(v)] for v in node["tops"] if ("data", self.root(v)) in self.at]
        unit = self.tensors[there[0]]["unit"] if there else len(self.units)
        if not there:
            self.units.append({"nodes": [], "inputs": set(), "repeats": bool(node["bottoms"])})
        self.units[unit]["nodes"].append(n)
        made = [(("data", self.root(v)), self.values[self.root(v)]["bytes"]) for v in node["tops"]] + [(("saved", n), node["saved"])]
        for key, size in made:
            if key not in self.at and size > 0:
                apart = key[0] == "saved" and node["repeats_from_saved"]
                if apart:
                    self.units.append({"nodes": [], "inputs": set(), "repeats": False})
                self.at[key] = len(self.tensors)
                home = len(self.units) - 1 if apart else unit
                self.tensors.append(dict(bytes=arena(size), unit=home, made=at, used=at, changed=at, back=[], stays=False, leaves=not apart))
            if key in self.at:
                self.tensors[self.at[key]]["changed"] = self.tensors[self.at[key]]["used"] = at
        for v in node["bottoms"]:
            i = self.at.get(("data", self.root(v)))
            if i is not None:
                self.tensors[i]["used"] = at
                if self.tensors[i]["unit"] != unit:
                    self.units[unit]["inputs"].add(i)

    def diffs(self):
        """Bytes of gradients alive at each action backward, and of those that were alive before it."""
        uses = {}
        for h, n in enumerate(self.backward):
            node = self.nodes[n]
            touched = [v for v in node["tops"] if self.values[v]["needs_diff"]]
            touched += [v for v, wanted in zip(node["bottoms"], node["propagates"]) if wanted]
            for v in touched:
                uses.setdefault(self.root(v), []).append(h)
        sums, lasting = ([0] * len(self.backward) for _ in range(2))

        def add(first, end, size):
            for h in range(first, end):
                sums[h] += arena(size)
                lasting[h] += arena(size) if h > first else 0

        for root, at in uses.items():
            flows = any(v["root"] == root and v["needs_diff"] and self.nodes[v["producer"]]["backward"] for v in self.values)
            add(at[0], at[-1] + 1 if flows else len(sums), self.values[root]["bytes"])
        for param, size in enumerate(param["bytes"] for param in self.params):
            add(min(h for h, n in enumerate(self.backward) if param in self.nodes[n]["gradients"]), len(sums), size)
        return sums, lasting


class Model:
    """A program that grows by variables and rows."""

    def __init__(self):
        self.highs = highspy.Highs()
        self.highs.silent()
        self.count = 0

    def variable(self, cost=0.0, upper=1.0, integer=True):
        self.highs.addVar(0.0, upper)
        self.highs.changeColCost(self.count, cost)
        if integer:
            self.highs.changeColIntegrality(self.count, highspy.HighsVarType.kInteger)
        self.count += 1
        return self.count - 1

    def row(self, terms, low=-INFINITY, high=INFINITY):
        sums = {}
        for variable, factor in terms:
            sums[variable] = sums.get(variable, 0.0) + factor
        self.highs.addRow(low, high, len(sums), list(sums), list(sums.values()))

    def solve(self):
        self.highs.setOptionValue("mip_rel_gap", 1e-6)
        self.highs.setOptionValue("time_limit", 120.0)
        self.highs.run()
        done = self.highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        info = self.highs.getInfo()
        return done, info.objective_function_value if done else info.mip_dual_bound


def optimum(outline, costs, budget):
    """Whether the solver is done in time, and the least time of an iteration in milliseconds, or else what it is at least."""
    net, model = Net(outline), Model()
    forward, backward, tensors, units = net.forward, net.backward, net.tensors, net.units
    turn, steps, mib = len(forward), range(len(backward)), 1.0 / (1 << 20)
    passes = costs["nodes"]

    # A point of each kernel's front.
    points = {}
    for pass_, nodes in enumerate((forward, backward)):
        for n in nodes:
            points[n, pass_] = [(model.variable(one["time_ms"]), one["time_ms"], arena(one["workspace"])) for one in passes[n][pass_]["front"]]
            if points[n, pass_]:
                model.row([(v, 1.0) for v, _, _ in points[n, pass_]], 1.0, 1.0)
    constant = sum(passes[n][0]["fixed_ms"] for n in forward) + sum(passes[n][1]["fixed_ms"] for n in backward)
    constant += costs["update_ms"] if outline["updates"] else 0.0

    def scratch(n, pass_):
        return arena(outline["nodes"][n]["scratch"][pass_]) if not passes[n][pass_]["front"] else 0

    # What becomes of each map.
    keep = [model.variable() for _ in tensors]
    own = [min([t["back"][0] for t in tensors if t["unit"] == u and t["back"]], default=len(backward)) for u in range(len(units))]
    again = [[model.variable(upper=float(unit["repeats"] and h <= last)) for h in steps] for unit, last in zip(units, own)]
    leaves = [tensor["leaves"] and not tensor["stays"] for tensor in tensors]
    out = [{d: model.variable() for d in range(t["used"] + 1, turn + 1)} if ok else {} for t, ok in zip(tensors, leaves)]
    back = [{(h, g): model.variable() for g in steps for h in range(g + 1)} if ok else {} for ok in leaves]
    usable = [[model.variable(integer=False) for _ in steps] for _ in tensors]
    during = [[model.variable(integer=False) for _ in steps] for _ in tensors]
    repeat_ms = {}
    for u, unit in enumerate(units):
        for h in steps:
            terms = []
            for n in unit["nodes"]:
                if points[n, 0]:
                    constant_ms = passes[n][0]["fixed_ms"]
                    for v, ms, _ in points[n, 0]:
                        both = model.variable(ms, integer=False)
                        model.row([(both, 1.0), (v, -1.0), (again[u][h], -1.0)], low=-1.0)
                        terms.append((both, ms))
                else:
                    constant_ms = costs["again_ms"][n] if costs["again_ms"] else passes[n][0]["fixed_ms"]
                terms.append((again[u][h], constant_ms))
                fixed = model.variable(constant_ms, integer=False)
                model.row([(fixed, 1.0), (again[u][h], -1.0)], low=0.0)
            repeat_ms[u, h] = terms
    for i, tensor in enumerate(tensors):
        u = tensor["unit"]
        stays_or_leaves = [(keep[i], 1.0)] + [(v, 1.0) for v in back[i].values()]
        for h in steps:
            model.row([(again[u][h], 1.0)] + stays_or_leaves, high=1.0)
        model.row([(v, 1.0) for v in out[i].values()] + [(v, -1.0) for v in back[i].values()], 0.0, 0.0)
        for h in steps:
            arrives = [(again[u][h], -1.0)] + [(v, -1.0) for (_, g), v in back[i].items() if g == h]
            before = usable[i][h - 1] if h else keep[i]
            model.row([(during[i][h], 1.0), (before, -1.0)] + arrives, high=0.0)
            model.row([(usable[i][h], 1.0), (during[i][h], -1.0)], high=0.0)
            if tensor["stays"] or tensor["back"] and tensor["back"][0] <= h <= tensor["back"][-1]:
                model.row([(usable[i][h], 1.0)], low=1.0)
    for u, unit in enumerate(units):
        for i in unit["inputs"]:
            for h in steps:
                model.row([(again[u][h], 1.0), (during[i][h], -1.0)], high=0.0)

    # Memory forward, backward, and where something is computed again.
    for f, n in enumerate(forward):
        terms, rest = [(v, size * mib) for v, _, size in points[n, 0]], scratch(n, 0)
        for i, tensor in enumerate(tensors):
            if tensor["made"] <= f <= tensor["used"]:
                rest += tensor["bytes"]
            elif f > tensor["used"]:
                terms += [(v, tensor["bytes"] * mib) for v in [keep[i]] + [v for d, v in out[i].items() if d > f]]
        model.row(terms, high=(budget - rest) * mib)
    (diffs, lasting), large = net.diffs(), sum(tensor["bytes"] for tensor in tensors) * 4 * mib
    readers = [[u for u, unit in enumerate(units) if i in unit["inputs"]] for i in range(len(tensors))]
    for h, n in enumerate(backward):
        coming = [(v, tensors[i]["bytes"] * mib) for i in range(len(tensors)) for (first, g), v in back[i].items() if first <= h < g]
        terms = [(usable[i][h], tensor["bytes"] * mib) for i, tensor in enumerate(tensors)]
        terms += [(v, size * mib) for v, _, size in points[n, 1]]
        model.row(terms + coming, high=(budget - diffs[h] - scratch(n, 1)) * mib)
        for u, unit in enumerate(units):
            if not unit["repeats"]:
                continue
            terms = [(again[u][h], large)] + coming
            for i, tensor in enumerate(tensors):
                # There while u is computed again: what is used after that, or read by what follows it in this turn.
                there, is_later = model.variable(integer=False), tensor["unit"] > u
                made = [(again[tensor["unit"]][h], 1.0)] if is_later else []
                model.row([(there, 1.0), (usable[i][h], -1.0)] + made, low=0.0)
                for reader in [r for r in readers[i] if r >= u] + ([u] if tensor["unit"] == u else []):
                    model.row([(there, 1.0), (during[i][h], -1.0), (again[reader][h], -1.0)] + made, low=-1.0)
                terms.append((there, tensor["bytes"] * mib))
            for n in unit["nodes"]:
                workspace = [(v, size * mib) for v, _, size in points[n, 0]]
                model.row(terms + workspace, high=(budget - lasting[h] - scratch(n, 0)) * mib + large)

    # Copies: those that begin and end within an interval of actions take no longer than it.
    def copy_ms(i, direction):
        return costs["launch_ms"] + tensors[i]["bytes"] / costs["bytes_per_ms"][direction]

    stall = [model.variable(1.0, INFINITY, False) for _ in range(turn + len(backward))]

    def time(first, end):
        """Of the actions from first to before end, with what is computed again and stalls; a constant and terms."""
        terms, ms = [(stall[at], 1.0) for at in range(first, end)], 0.0
        for at in range(first, end):
            n, pass_ = (forward[at], 0) if at < turn else (backward[at - turn], 1)
            ms += passes[n][pass_]["fixed_ms"]
            terms += [(v, one) for v, one, _ in points[n, pass_]]
            terms += [term for u in range(len(units)) for term in repeat_ms[u, at - turn]] if at >= turn else []
        return ms, terms

    for first in range(turn):
        for end in range(first + 1, turn + 1):
            moved = [(v, -copy_ms(i, 0)) for i, t in enumerate(tensors) if t["changed"] >= first for d, v in out[i].items() if d <= end]
            if moved:
                ms, terms = time(first + 1, end)
                # Computation may wait before the action that needs the place.
                model.row(moved + terms + ([(stall[end], 1.0)] if end < turn + len(backward) else []), low=-ms)
    for first in steps:
        for end in range(first, len(backward)):
            moved = [(v, -copy_ms(i, 1)) for i in range(len(tensors)) for (h, g), v in back[i].items() if h >= first and g <= end]
            if moved:
                ms, terms = time(turn + first, turn + end)
                model.row(moved + terms + [(stall[turn + end], 1.0)], low=-ms)
    done, best = model.solve()
    return done, best + constant


def main():
    print(f"{'net':10} {'part':>5} {'bound ms':>9} {'ILP ms':>9} {'ours ms':>9} {'ours over ILP':>14}")
    faults = 0
    for line in sys.stdin:
        name, part, budget, planned_ms, bound_ms, outline, costs = json.loads(line)
        done, best_ms = optimum(outline, costs, budget)
        faults += done and bound_ms > best_ms * (1 + 1e-4)
        remark = f"{100 * (planned_ms / best_ms - 1):+13.2f} %" + ("" if done else ", not solved in 120 s: at least")
        print(f"{name:10} {part:5.2f} {bound_ms:9.4f} {best_ms:9.4f} {planned_ms:9.4f} {remark}", flush=True)
    if faults:
        sys.exit(f"{faults} bounds are above the optimum")


if __name__ == "__main__":
    main()
