#!/usr/bin/env python3
"""
peer_lists_report.py
		The tables of bench/peers_lists: what bench/engine_lists, bench/engine and the parts of peer_lists.py have measured, beside each other.

	peer_lists_report.py -n ROWS -d DIMS --lists FILE --graph TYPE:DEGREE=FILE --peer FILE ...

Files of parts that failed may be cut off or absent: what is there is compared.

	read_lists, read_graph, read_peer       what the programs printed, into points and indexes
	Report          the tables
"""
import argparse
import json
import os
import re
import sys

from peer_cuvs import K, RECALLS, Points, numbers, read_engine, say

OUR_LISTS, OUR_GRAPH = "gpuann, lists", "gpuann, graph"
LISTS_BATCHES = (64, 256, 1024, 10000, 1)       # of the last columns of bench/engine_lists


class Measured:
    """
    Points (method, index, setting, batch, recall, microseconds by the clock and between events or None), and indexes: by (method, index) seconds, bytes
    of the index, bytes of rows that it reads.
    """

    def __init__(self, rows, dims):
        self.rows, self.dims = rows, dims
        self.points, self.indexes = [], {}
        self.calls, self.failures, self.peers, self.ends = [], [], [], []

    def add(self, method, index, setting, batch, recall, wall, device):
        self.points.append({"method": method, "index": index, "setting": setting, "batch": batch, "recall": recall, "wall": wall, "device": device,
                            "time": device or wall})

    def row_bytes(self, kind):
        return self.rows * self.dims * {"float": 4, "half": 2, "int8": 1}[kind]

    def memory(self, point):
        """Bytes on the device of all that a search of this point reads, or None."""
        index = self.indexes.get((point["method"], point["index"]))
        return None if index is None else index[1] + index[2]


def read_lists(path, measured):
    """What bench/engine_lists printed."""
    if not os.path.exists(path):
        return
    for line in open(path, encoding="utf-8"):
        built = re.match(r"(.+): trained in ([0-9.]+) s .*, linked in ([0-9.]+) s .*, ([0-9.]+) MB with the rows' ([0-9.]+)", line)
        words = [word.strip() for word in line.strip().strip("|").split("|")]
        if built:
            rows = float(built.group(5)) * 1e6
            measured.indexes[OUR_LISTS, built.group(1)] = (float(built.group(2)) + float(built.group(3)), float(built.group(4)) * 1e6 - rows, rows)
        elif len(words) == 13 and words[1].isdigit():
            for batch, time_us in zip(LISTS_BATCHES, words[8:]):
                measured.add(OUR_LISTS, words[0], "probes %s" % words[1], batch, float(words[3]), float(time_us), None)


def read_graph(what, path, measured):
    """What bench/engine printed of a graph: TYPE:DEGREE."""
    if not os.path.exists(path):
        return
    kind, degree = what.split(":")
    index = "%s rows, degree %s" % (kind, degree)
    points = Points()
    read_engine(path, "graph", points)
    memory = re.search(r"memory, MiB: context \d+, vectors (\d+), graph (\d+), norms (\d+)", open(path, encoding="utf-8").read())
    if memory:
        vectors, graph, codes = (int(number) * 2 ** 20 for number in memory.groups())
        measured.indexes[OUR_GRAPH, index] = (points.builds[0][1] if points.builds else None, graph + codes, vectors)
    for batch, recall, wall, _, setting in points.points:
        measured.add(OUR_GRAPH, index, setting.split(", ")[1], batch, recall, wall, None)


def read_peer(path, measured):
    """What a part of peer_lists.py has left, as far as its lines are whole."""
    if not os.path.exists(path):
        return
    for line in open(path, encoding="utf-8"):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        kind = found.pop("kind")
        if kind == "point":
            measured.add(**found)
        elif kind == "build":
            # An index that takes nothing from the pool has its memory beside it.
            size = found["bytes"] if found["bytes"] > 2 ** 20 else max(found["beside"], 0)
            if "CAGRA" in found["method"]:
                for rows in ("half", "int8", "float"):
                    measured.indexes["cuVS CAGRA, %s rows" % rows, found["index"]] = (
                        found["seconds"], measured.rows * 4 * int(found["index"].split()[-1]), measured.row_bytes(rows))
            else:
                measured.indexes[found["method"], found["index"]] = (found["seconds"], size, 0)
                measured.indexes[found["method"] + ", refined", found["index"]] = (found["seconds"], size, measured.row_bytes("float"))
        elif kind == "call":
            measured.calls.append(found)
        elif kind == "failed":
            measured.failures.append(found)
        elif kind == "peer":
            measured.peers.append(found)
        else:
            measured.ends.append(found)


def megabytes(size):
    return "–" if size is None else "%.0f" % (size / 1e6)


def microseconds(value):
    return "–" if value is None else "%.1f" % value if value < 1000 else "%.0f" % value


def times(theirs, ours):
    return "%.2f" % (theirs["time"] / ours["time"]) if theirs and ours else "–"


class Report:
    """Prints the tables; the figure that is compared is the one between events, where there is one."""

    def __init__(self, measured, batches):
        self.measured, self.batches = measured, batches
        self.kinds = list(dict.fromkeys((p["method"], p["index"] if p["method"].startswith("gpuann") else None) for p in measured.points))

    def fastest(self, batch, recall, method, index=None, most_bytes=None):
        """The fastest point of a method that reaches a recall, of one index or within so many bytes if asked; or None."""
        return min((p for p in self.measured.points if p["batch"] == batch and p["recall"] >= recall and p["method"] == method and
                    index in (None, p["index"]) and (most_bytes is None or (self.measured.memory(p) or most_bytes + 1) <= most_bytes)),
                   key=lambda p: p["time"], default=None)

    def indexes(self):
        say("\n## Indexes\n\n| method | index | built in, s | MB | MB of rows that a search reads |\n|---|---|---|---|---|")
        for (method, index), (seconds, size, rows) in self.measured.indexes.items():
            if any(p["method"] == method and p["index"] == index for p in self.measured.points):
                say("| %s | %s | %s | %s | %s |" % (method, index, "–" if seconds is None else "%.2f" % seconds, megabytes(size), megabytes(rows)))

    def calls(self):
        if self.measured.calls:
            say("\n## The smallest search of each kind: what a call costs beside the device's work, µs\n")
            say("| method | by the clock | between events | the call |\n|---|---|---|---|")
        for call in self.measured.calls:
            say("| %s | %.1f | %.1f | %.1f |" % (call["method"], call["wall"], call["device"], call["wall"] - call["device"]))

    def at_recall(self):
        for batch in self.batches:
            for recall in RECALLS:
                lists, graph = (self.fastest(batch, recall, method) for method in (OUR_LISTS, OUR_GRAPH))
                say("\n### Batches of %d, recall@%d ≥ %.2f\n" % (batch, K, recall))
                say("| method | index | setting | recall | µs by the clock | between events | M queries/s | MB with the rows | times our lists' µs | our graph's |")
                say("|---|---|---|---|---|---|---|---|---|---|")
                missed = []
                found = [(kind, self.fastest(batch, recall, *kind)) for kind in self.kinds]
                for (method, index), p in sorted(found, key=lambda pair: pair[1]["time"] if pair[1] else 0):
                    if p is None:
                        missed.append(method + (", " + index if index else ""))
                        continue
                    say("| %s | %s | %s | %.4f | %s | %s | %.3f | %s | %s | %s |" % (
                        method, p["index"], p["setting"], p["recall"], microseconds(p["wall"]), microseconds(p["device"]), batch / p["time"],
                        megabytes(self.measured.memory(p)), times(p, lists), times(p, graph)))
                if missed:
                    say("\nNot reached: %s." % "; ".join(missed))

    def equal_memory(self):
        say("\n## Our graph at equal memory\n")
        say("The fastest graph that takes no more of the device, its rows among it, than the other with the rows that it reads.\n")
        say("| batch | recall ≥ | method | index | MB | µs | graph | MB | µs | times the graph's µs |\n|---|---|---|---|---|---|---|---|---|---|")
        for batch in self.batches:
            for recall in RECALLS:
                for method, index in ((m, i) for m, i in self.kinds if m != OUR_GRAPH):
                    p = self.fastest(batch, recall, method, index)
                    size = self.measured.memory(p) if p else None
                    if size is None:
                        continue
                    graph = self.fastest(batch, recall, OUR_GRAPH, None, size)
                    say("| %d | %.2f | %s | %s | %s | %s | %s | %s | %s | %s |" % (
                        batch, recall, method, p["index"], megabytes(size), microseconds(p["time"]),
                        "%s, %s" % (graph["index"], graph["setting"]) if graph else "none so small", megabytes(self.measured.memory(graph) if graph else None),
                        microseconds(graph["time"] if graph else None), times(p, graph)))

    def all_points(self):
        say("\n## All that was measured\n")
        say("| method | index | setting | batch | recall@%d | µs by the clock | between events | M queries/s |\n|---|---|---|---|---|---|---|---|" % K)
        for p in self.measured.points:
            say("| %s | %s | %s | %d | %.4f | %s | %s | %.3f |" % (p["method"], p["index"], p["setting"], p["batch"], p["recall"], microseconds(p["wall"]),
                                                                microseconds(p["device"]), p["batch"] / p["time"]))

    def ends(self):
        for end in self.measured.ends:
            say("* %s took %.0f s%s" % (end["part"], end["seconds"], "; its time was over before every setting was measured" if end["over"] else ""))
        for failure in self.measured.failures:
            say("* failed: %s, %s: %s" % (failure["method"], failure["setting"], failure["why"]))


def main():
    parser = argparse.ArgumentParser(description="the tables of bench/peers_lists")
    add = parser.add_argument
    add("-n", "--rows", type=int, required=True)
    add("-d", "--dims", type=int, required=True)
    add("--batch", type=numbers, default=numbers("10000,256,64,1"))
    add("--lists", action="append", default=[], metavar="FILE", help="what bench/engine_lists printed")
    add("--graph", action="append", default=[], metavar="TYPE:DEGREE=FILE", help="what bench/engine printed")
    add("--peer", action="append", default=[], metavar="FILE", help="what a part of peer_lists.py wrote")
    arguments = parser.parse_args()
    measured = Measured(arguments.rows, arguments.dims)
    for path in arguments.lists:
        read_lists(path, measured)
    for text in arguments.graph:
        read_graph(*text.split("=", 1), measured)
    for path in arguments.peer:
        read_peer(path, measured)
    for name in dict.fromkeys("* %s %s on %s" % (p["name"], p["version"], p["device"]) for p in measured.peers):
        say(name)
    report = Report(measured, arguments.batch)
    report.ends()
    report.indexes()
    report.calls()
    say("\n## The fastest of each that reaches a recall")
    report.at_recall()
    report.equal_memory()
    report.all_points()


if __name__ == "__main__":
    sys.exit(main())
