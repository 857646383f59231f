#!/usr/bin/env python3
"""
peer_cuvs.py
		cuVS on the vectors that bench/engine was measured on: CAGRA (build; recall, median time and queries per second for a sweep of settings) and
		brute force, and what was measured of gpuann beside the fastest setting of each that reaches a recall.

Batches of queries are resident on the device, as is what they find: no copy is in a figure. A memory pool, outputs made beforehand, one Resources
object, synchronised after each call; 10 warm-ups, at least 10 runs, the median. True neighbours: brute force's 32 nearest, ranked anew in double; a
row as near as the tenth counts. Prints markdown as it goes. Within --seconds it begins no further part.

	Cuvs, Dry       the calls of the library, and numpy in its place (--dry: everything but the figures, without a GPU)
	Points          what was measured, of both; the fastest of a batch that reaches a recall
	read_engine, read_exact     what bench/engine and bench/exact printed
	sweep, exact, builds        the parts; compare prints the tables of ratios

The library: libcuvs, cuvs, libraft, pylibraft, librmm, rmm, libkvikio, rapids-logger (suffix -cu13) and nvidia-nvjitlink of 13.3 or later, from PyPI, on
PYTHONPATH, with cupy and numpy.
"""
import argparse
import os
import re
import signal
import statistics
import sys
import time
import traceback

import numpy as np

K = 10
WARM_UPS = 10
LEAST_RUNS = 10
MOST_RUNS = 200
RUN_SECONDS = 0.15              # of one figure: more runs than LEAST_RUNS as long as they take less
RECALLS = (0.90, 0.95, 0.99)
TRUTH_CANDIDATES = 32
MOST_BATCHES = 1000             # small batches ask fewer of the queries
EXACT_BATCHES = (1, 16, 128, 10000)
BEGAN = time.monotonic()


def numbers(text):
    """A list of numbers with commas."""
    return [int(word) for word in text.split(",")]


def seconds_so_far():
    return time.monotonic() - BEGAN


def step(text):
    """Say on standard error what happens next."""
    print("%4.0f s  %s" % (seconds_so_far(), text), file=sys.stderr, flush=True)


def say(text=""):
    print(text, flush=True)


class Cuvs:
    """The calls of cuVS; its libraries first, since they need their own libnvJitLink rather than one that another package has loaded."""

    name = "cuVS"

    def __init__(self):
        import cuvs
        from cuvs.common import Resources
        from cuvs.neighbors import brute_force, cagra
        import rmm
        rmm.reinitialize(pool_allocator=True, initial_pool_size="16GiB")
        import cupy
        self.version = cuvs.__version__
        self.cagra, self.brute_force, self.cupy = cagra, brute_force, cupy
        self.device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        self.resources = Resources()

    def resident(self, array):
        copy = self.cupy.asarray(array)
        self.cupy.cuda.Device().synchronize()
        return copy

    def fetch(self, array):
        return array.get()

    def build(self, rows, algo, degree):
        params = self.cagra.IndexParams(metric="sqeuclidean", graph_degree=degree, intermediate_graph_degree=2 * degree, build_algo=algo)
        index = self.cagra.build(params, rows, resources=self.resources)
        self.resources.sync()
        return index

    def outputs(self, count, k, ids):
        return self.cupy.empty((count, k), ids), self.cupy.empty((count, k), np.float32)

    def search(self, index, batches, itopk, width, out):
        """A function that searches for a batch and waits for it."""
        params = self.cagra.SearchParams(itopk_size=itopk, search_width=width, algo="auto")

        def once(turn):
            self.cagra.search(params, index, batches[turn % len(batches)], K, neighbors=out[0], distances=out[1], resources=self.resources)
            self.resources.sync()
        return once

    def brute(self, rows):
        """An index that looks at these rows themselves; it does not keep them, so the pair is handed on."""
        index = self.brute_force.build(rows, metric="sqeuclidean", resources=self.resources)
        self.resources.sync()
        return index, rows

    def exact(self, pair, batches, out):
        index, _ = pair

        def once(turn):
            self.brute_force.search(index, batches[turn % len(batches)], out[0].shape[1], neighbors=out[0], distances=out[1], resources=self.resources)
            self.resources.sync()
        return once

    def distances(self, rows, queries, ids):
        """Squared distances in double of each query and its rows."""
        out = np.empty(ids.shape)
        for at in range(0, len(ids), 500):
            found = rows[self.cupy.asarray(ids[at:at + 500].astype(np.int64))].astype(np.float64)
            difference = found - queries[at:at + 500, None, :].astype(np.float64)
            out[at:at + 500] = (difference * difference).sum(axis=2).get()
        return out


class Dry:
    """The same by numpy, to rehearse without a GPU: its graph search is an exact one over a part of the rows that grows with the settings."""

    name = "numpy in place of cuVS"
    version = np.__version__
    device = "no device"

    def resident(self, array):
        return array

    fetch = resident

    def build(self, rows, algo, degree):
        if algo == "fail":
            raise RuntimeError("a build that fails\nwith two lines")
        return rows

    brute = resident

    def outputs(self, count, k, ids):
        return np.zeros((count, k), ids), np.zeros((count, k), np.float32)

    def find(self, rows, batches, share, out):
        rows = rows[:max(int(len(rows) * share), out[0].shape[1])].astype(np.float32)
        norms = (rows * rows).sum(axis=1)

        def once(turn):
            asked = batches[turn % len(batches)].astype(np.float32)
            all_of = norms - 2 * asked @ rows.T
            out[0][:] = np.argpartition(all_of, out[0].shape[1] - 1, axis=1)[:, :out[0].shape[1]]
        return once

    def search(self, index, batches, itopk, width, out):
        return self.find(index, batches, 1 - 1.6 / (itopk * width ** 0.5), out)

    def exact(self, index, batches, out):
        return self.find(index, batches, 1, out)

    def distances(self, rows, queries, ids):
        out = np.empty(ids.shape)
        for i, found in enumerate(ids):
            difference = rows[found.astype(np.int64)].astype(np.float64) - queries[i].astype(np.float64)
            out[i] = (difference * difference).sum(axis=1)
        return out


class Points:
    """Measured points: (batch, recall, microseconds, microseconds in the engine or None, what)."""

    def __init__(self):
        self.points = []
        self.builds = []            # (what, seconds)

    def add(self, *point):
        self.points.append(point)

    def only(self, what):
        """The points of one kind."""
        some = Points()
        some.points = [point for point in self.points if point[4] == what]
        return some

    def fastest(self, batch, recall):
        """The fastest point of a batch that reaches a recall, or None."""
        return min((p for p in self.points if p[0] == batch and p[1] >= recall), key=lambda p: p[2], default=None)


def read_engine(path, what, points):
    """Add to the points what bench/engine printed: the tables that follow "ef N: recall@1 ..., recall@10 ...;"."""
    recall = ef = None
    for line in open(path, encoding="utf-8"):
        head = re.match(r"ef (\d+): .*recall@%d ([0-9.]+)" % K, line)
        row = re.match(r"\| (\d+) \| ([0-9.]+) \| [0-9.]+ \| [0-9.]+ \| (\d+) \| (\d+) \|", line)
        built = re.match(r"\* linked: \d+ rows in ([0-9.]+) s", line)
        if built:
            points.builds.append(("gpuann, " + what, float(built.group(1))))
        if head:
            ef, recall = head.group(1), float(head.group(2))
        elif row and recall is not None:
            batch, queued, inside = int(row.group(1)), float(row.group(3)), float(row.group(4))
            # The engine's own time is that of the last query: of the whole batch only where it was answered in one piece.
            points.add(batch, recall, float(row.group(2)), inside if queued < inside / 2 else None, "%s, ef %s" % (what, ef))


def read_exact(path, what, points):
    """Add to the points what bench/exact printed."""
    for line in open(path, encoding="utf-8"):
        row = re.match(r"\| (\d+) \| ([0-9.]+) \| [0-9.]+ – [0-9.]+ \| \d+ \| [^|]* \| \d+ \| (\d+) \|", line)
        if row:
            time_us, inside = float(row.group(2)), float(row.group(3))
            points.add(int(row.group(1)), 1.0, time_us, inside if inside > time_us / 2 else None, what)


def median_time(once):
    """Median microseconds of one call, and how many runs; each call takes the next batch of queries."""
    taken = []
    for run in range(WARM_UPS + MOST_RUNS):
        start = time.perf_counter()
        once(run)
        if run >= WARM_UPS:
            taken.append(time.perf_counter() - start)
        if len(taken) >= LEAST_RUNS and sum(taken) > RUN_SECONDS:
            break
    return statistics.median(taken) * 1e6, len(taken)


class Data:
    """The vectors of one type, on the device and here, and their true neighbours."""

    def __init__(self, peer, arguments, half):
        kind = np.dtype(np.float16 if half else np.float32)
        base = np.fromfile(arguments.base, "<f4", arguments.rows * arguments.dims).reshape(arguments.rows, arguments.dims)
        query = np.fromfile(arguments.query, "<f4").reshape(-1, arguments.dims)[:arguments.queries]
        self.what = "half" if half else "float"
        self.rows = peer.resident(base.astype(kind, copy=False))
        self.queries = peer.resident(query.astype(kind))
        self.count = len(query)
        brute = peer.brute(self.rows if not half else peer.resident(base.astype(kind).astype(np.float32)))
        out = peer.outputs(self.count, min(TRUTH_CANDIDATES, len(base)), np.int64)
        peer.exact(brute, [peer.resident(query.astype(kind).astype(np.float32))], out)(0)
        ids = peer.fetch(out[0])
        distances = peer.distances(self.rows, self.queries, ids)
        order = np.argsort(distances, axis=1, kind="stable")[:, :K]
        self.tenth = np.take_along_axis(distances, order, 1)[:, K - 1]

    def batches(self, batch):
        """The queries in batches of this size, made beforehand; of small ones not all."""
        return [self.queries[at:at + batch] for at in range(0, self.count - batch + 1, batch)][:MOST_BATCHES]

    def recall(self, peer, ids):
        """Share of the answers that are as near as the tenth true neighbour, of the first queries; none counts twice."""
        ids = np.sort(ids, axis=1)
        bad = ids >= len(self.rows)
        bad[:, 1:] |= ids[:, 1:] == ids[:, :-1]
        distances = peer.distances(self.rows, self.queries[:len(ids)], np.where(bad, 0, ids))
        return float((~bad & (distances <= self.tenth[:len(ids), None])).mean())


def recall_of(peer, data, once, out, batches):
    """Recall in batches of this size: another size may take another kernel, and find other rows."""
    found = []
    for turn in range(len(batches)):
        once(turn)
        found.append(peer.fetch(out[0]).copy())
    return data.recall(peer, np.concatenate(found))


def sweep(peer, data, index, what, arguments, points):
    """Measure a graph with every setting and batch; of wider searches only what can still be of use."""
    say("\n### CAGRA, %s\n" % what)
    say("| batch | itopk | width | recall@10 | median µs | queries/s | runs |\n|---|---|---|---|---|---|---|")
    for batch in arguments.batch:
        out = peer.outputs(batch, K, np.uint32)
        batches = data.batches(batch)
        for width in arguments.width:
            for itopk in arguments.itopk:
                if seconds_so_far() > arguments.seconds:
                    return
                try:
                    once = peer.search(index, batches, itopk, width, out)
                    time_us, runs = median_time(once)
                    recall = recall_of(peer, data, once, out, batches)
                except Exception as error:
                    say("| %d | %d | %d | failed: %s | | | |" % (batch, itopk, width, " ".join(str(error).split())[:200]))
                    continue
                say("| %d | %d | %d | %.4f | %.1f | %.0f | %d |" % (batch, itopk, width, recall, time_us, batch / time_us * 1e6, runs))
                points.add(batch, recall, time_us, None, "%s, itopk %d, width %d" % (what, itopk, width))
                if recall >= RECALLS[-1]:
                    break                   # a longer list costs more and finds what is not asked for


def builds(peer, data, arguments, points):
    """Build every graph; returns those that could be built."""
    made = []
    for build in arguments.build:
        algo, degree = build.split(":")
        what = "%s, %s, degree %s" % (data.what, algo, degree)
        if seconds_so_far() > arguments.seconds:
            say("* %s: not built, no time is left" % what)
            continue
        step("building: " + what)
        try:
            peer.build(data.rows[:min(20000, len(data.rows))], algo, int(degree))       # so that no kernel is loaded within the figure
            start = time.perf_counter()
            index = peer.build(data.rows, algo, int(degree))
        except Exception as error:
            say("* %s: failed: %s" % (what, " ".join(str(error).split())[:300]))
            continue
        points.builds.append((what, time.perf_counter() - start))
        say("* %s: built in %.2f s" % points.builds[-1])
        made.append((what, index))
    return made


def exact(peer, data, points):
    """Measure brute force; what it finds in halves is not always the nearest, so that its recall is printed."""
    say("\n### Brute force, %s, k = %d\n\n| batch | recall@10 | median µs | queries/s | runs |\n|---|---|---|---|---|" % (data.what, K))
    index = peer.brute(data.rows)
    for batch in EXACT_BATCHES:
        if batch > data.count:
            continue
        out, batches = peer.outputs(batch, K, np.int64), data.batches(batch)
        once = peer.exact(index, batches, out)
        time_us, runs = median_time(once)
        recall = recall_of(peer, data, once, out, batches[:100])
        say("| %d | %.4f | %.1f | %.0f | %d |" % (batch, recall, time_us, batch / time_us * 1e6, runs))
        points.add(batch, 1.0, time_us, None, data.what)


def ratio(theirs, ours):
    return "%.2f" % (theirs / ours) if theirs and ours else "–"


def compare(title, batches, recalls, ours, theirs):
    """The table of ratios: how many times as fast ours is, host to host and in the engine, as the fastest of the peer's."""
    say("\n### %s\n" % title)
    say("| batch | recall ≥ | gpuann µs | in the engine | its setting | peer µs | its setting | times as fast | in the engine |")
    say("|---|---|---|---|---|---|---|---|---|")
    for batch in batches:
        for recall in recalls:
            a, b = ours.fastest(batch, recall), theirs.fastest(batch, recall)
            say("| %d | %s | %s | %s | %s | %s | %s | %s | %s |" % (
                batch, "%.2f" % recall if recall < 1 else "all", "%.1f" % a[2] if a else "–", "%.0f" % a[3] if a and a[3] else "–",
                "%s (%.4f)" % (a[4], a[1]) if a else "not reached", "%.1f" % b[2] if b else "–",
                "%s (%.4f)" % (b[4], b[1]) if b else "not reached", ratio(b and b[2], a and a[2]), ratio(b and b[2], a and a[3])))


def parse():
    parser = argparse.ArgumentParser(description="cuVS on the vectors of bench/engine: CAGRA and brute force")
    add = parser.add_argument
    add("--base", required=True, help="rows, raw little-endian float32")
    add("--query", required=True, help="queries, likewise")
    add("-n", "--rows", type=int, required=True)
    add("-d", "--dims", type=int, required=True)
    add("-q", "--queries", type=int, default=10000)
    add("--type", default="float,half", help="types of the rows (float,half)")
    add("--build", default="nn_descent:32,ivf_pq:32", help="graphs, algorithm:degree; the first is swept first (nn_descent:32,ivf_pq:32)")
    add("--batch", type=numbers, default=numbers("10000,256,64,16,1"))
    add("--itopk", type=numbers, default=numbers("32,64,128,256"))
    add("--width", type=numbers, default=numbers("1,2,4"))
    add("--seconds", type=float, default=100, help="begin no further part or setting after so many (100)")
    add("--no-exact", action="store_true", help="leave brute force out")
    add("--engine", action="append", default=[], metavar="WHAT=FILE", help="what bench/engine printed, to compare with")
    add("--exact", action="append", default=[], metavar="WHAT=FILE", help="what bench/exact printed, likewise")
    add("--dry", action="store_true", help="numpy in place of cuVS")
    arguments = parser.parse_args()
    arguments.build = arguments.build.split(",")
    arguments.type = arguments.type.split(",")
    held = os.path.getsize(arguments.query) // (4 * arguments.dims)
    arguments.queries = min(arguments.queries, held)
    arguments.batch = [batch for batch in arguments.batch if batch <= arguments.queries]
    return arguments


def measure(peer, arguments, graph, brute):
    """Measure everything into the points of CAGRA and of brute force."""
    made = []
    say("## %s %s on %s: %d x %d, %d queries\n" % (peer.name, peer.version, peer.device, arguments.rows, arguments.dims, arguments.queries))
    for kind in arguments.type:
        step("reading, true neighbours: " + kind)
        data = Data(peer, arguments, kind == "half")
        if not arguments.no_exact:
            exact(peer, data, brute)
            say()
        made.append((data, builds(peer, data, arguments, graph)))
    # The first graph of every type, then the second: what the time does not suffice for is the least.
    for turn in range(len(arguments.build)):
        for data, graphs in made:
            if turn < len(graphs) and seconds_so_far() <= arguments.seconds:
                step("searching: " + graphs[turn][0])
                sweep(peer, data, graphs[turn][1], graphs[turn][0], arguments, graph)
    if seconds_so_far() > arguments.seconds:
        say("\nThe %.0f s were over before every setting was measured: the fastest ones are of those above." % arguments.seconds)


def end(*_):
    raise KeyboardInterrupt


def main():
    arguments = parse()
    graph, brute = Points(), Points()
    ours, ours_exact = Points(), Points()
    failed = False
    signal.signal(signal.SIGTERM, end)
    try:
        measure(Dry() if arguments.dry else Cuvs(), arguments, graph, brute)
    except (Exception, KeyboardInterrupt) as error:        # what was measured until then is compared all the same
        failed = True
        traceback.print_exc()
        say("\nIt ended early: %s %s" % (type(error).__name__, " ".join(str(error).split())[:300]))
    for text in arguments.engine:
        read_engine(text.split("=", 1)[1], text.split("=", 1)[0], ours)
    for text in arguments.exact:
        read_exact(text.split("=", 1)[1], text.split("=", 1)[0], ours_exact)
    say("\n### Graphs built, in seconds\n\n| graph | seconds |\n|---|---|")
    for what, taken in ours.builds + [("peer, " + what, taken) for what, taken in graph.builds]:
        say("| %s | %.2f |" % (what, taken))
    compare("Graph search at equal recall: the fastest setting of each", sorted(arguments.batch), RECALLS, ours, graph)
    for kind in arguments.type if not arguments.no_exact else ():
        compare("Exact search, " + kind, EXACT_BATCHES, (1.0,), ours_exact.only(kind), brute.only(kind))
    say("\n%s took %.0f s." % (Dry.name if arguments.dry else Cuvs.name, seconds_so_far()))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
