#!/usr/bin/env python3
"""
peer_lists.py
		Lists, codes and exact search of other libraries on the vectors that bench/engine_lists was measured on, and all of them beside each other.

	peer_lists.py pq|rabitq|cagra|torch --out FILE --base FILE --query FILE -n ROWS -d DIMS

One part of bench/peers_lists: it appends a line of JSON to the file for everything that it has measured, so that what ends it early takes nothing away, and
peer_lists_report.py makes tables of the lines. Vectors, true neighbours (of the rows as floats) and recall are peer_cuvs.py's; so are queries and answers
that are resident, the memory pool and one Resources object. Every search is timed twice: by the clock from call to the end of waiting, and between two
events of its stream, to which a kernel that waits has been given before, so that the whole call is in the queue when the first event is reached: what Python
and launches cost is not in it, unless the library itself waits. A setting that another one beats by far is not timed, nor one that finds less than 0.85.

	CuvsLists, Torch, DryLists      the calls of the libraries; numpy in their place (--dry: everything but the figures, without a GPU)
	Record          what was measured, in a file
	sweep_lists     measures lists of codes with every setting; sweep_cagra graphs
	pq, rabitq, cagra, torch        the parts

cuVS as in peer_cuvs.py; IVF-RaBitQ by bench/build/peer_rabitq.so (`make peer-rabitq`).
"""
import argparse
import ctypes
import json
import os
import statistics
import sys
import time

import numpy as np

from peer_cuvs import K, RECALLS, Cuvs, Data, Dry, numbers, recall_of, seconds_so_far, step

WARM_UPS = 3
LEAST_RUNS = 3
MOST_RUNS = 100
RUNS = 10                       # between events
RUN_SECONDS = 0.03              # of one figure by the clock
MOST_BATCHES = 300              # small batches ask fewer of the queries
SLOW_US = 20000                 # calls that are measured no more often than has to be
DELAY_CYCLES = 3000000          # more than any call takes to be queued
LEAST_RECALL = RECALLS[0] - 0.05        # below it nothing is timed
SMALL_ROWS = 20000              # rows and lists of the index that is built first, so that no kernel is loaded within a figure
SMALL_LISTS = 64
LARGE_SHARE = 0.75              # of the time is for the largest batch
LEAST_GAIN = 0.0005             # of recall, by more probes
FRONT = 1.5                     # so much slower than another setting of its recall, and smaller batches are not asked with it
DELAY = """
extern "C" __global__ void delay(long long cycles)
{
	long long start = clock64();

	while (clock64() - start < cycles)
		;
}
"""
PQ_MODES = {                    # tables, sums and products with centroids: their types
    "half": (np.float16, np.float16, np.float16),
    "float8": (np.uint8, np.float16, np.float16),
    "half, float sums": (np.float16, np.float32, np.float32)}
RABITQ_MODES = {"lut16": 0, "lut32": 1, "quant4": 2, "quant8": 3}
RABITQ_MODULE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "build", "peer_rabitq.so")


class CuvsLists(Cuvs):
    """The calls of cuVS that peer_cuvs.py lacks. Searches only queue their work: wait() waits for it."""

    def __init__(self):
        super().__init__()
        import rmm
        from cuvs.common import Resources
        from cuvs.neighbors import ivf_pq, refine
        from cuvs.preprocessing.quantize import scalar
        self.pool = rmm.mr.get_current_device_resource()
        self.counted = rmm.mr.StatisticsResourceAdaptor(self.pool)
        rmm.mr.set_current_device_resource(self.counted)
        self.ivf_pq, self.refine, self.scalar = ivf_pq, refine, scalar
        self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.resources = Resources(stream=self.stream.ptr)
        self.delay = self.cupy.RawKernel(DELAY, "delay")
        self.rabitq = None
        self.referred = []

    def wait(self):
        self.resources.sync()

    def device_us(self, call, runs):
        """Microseconds between events before and after a call that is queued as a whole: the median."""
        taken = []
        begin, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        for turn in range(runs):
            with self.stream:
                self.delay((1,), (1,), (np.int64(DELAY_CYCLES),))
            begin.record(self.stream)
            call(turn)
            end.record(self.stream)
            end.synchronize()
            taken.append(self.cupy.cuda.get_elapsed_time(begin, end) * 1e3)
        return statistics.median(taken)

    def memory(self):
        """Bytes taken from the pool, and bytes of the device that are taken beside it."""
        self.cupy.get_default_memory_pool().free_all_blocks()
        free, total = self.cupy.cuda.runtime.memGetInfo()
        return self.counted.allocation_counts.current_bytes, total - free - self.pool.pool_size()

    def build_pq(self, rows, lists, dims, bits):
        params = self.ivf_pq.IndexParams(n_lists=lists, metric="sqeuclidean", pq_dim=dims, pq_bits=bits, conservative_memory_allocation=True)
        index = self.ivf_pq.build(params, rows, resources=self.resources)
        self.wait()
        return index

    def search_pq(self, index, probes, mode):
        """A function that queues a search of queries for as many rows as the output has room for."""
        lut, sums, coarse = PQ_MODES[mode]
        params = self.ivf_pq.SearchParams(n_probes=probes, lut_dtype=lut, internal_distance_dtype=sums, coarse_search_dtype=coarse)

        def search(queries, out):
            self.ivf_pq.search(params, index, queries, out[0].shape[1], neighbors=out[0], distances=out[1], resources=self.resources)
        return search

    def rabitq_call(self, name, *arguments):
        if self.rabitq is None:
            self.rabitq = ctypes.CDLL(RABITQ_MODULE)
        function = getattr(self.rabitq, "peer_rabitq_" + name)
        function.restype = ctypes.c_char_p
        error = function(*arguments)
        if error is not None:
            raise RuntimeError(error.decode(errors="replace"))

    def build_rabitq(self, rows, lists, bits):
        index = ctypes.c_void_p()
        self.rabitq_call("build", ctypes.c_size_t(self.resources.get_c_obj()), ctypes.c_void_p(rows.data.ptr), ctypes.c_int64(rows.shape[0]),
                         ctypes.c_int64(rows.shape[1]), ctypes.c_uint32(lists), ctypes.c_uint32(bits), ctypes.byref(index))
        self.wait()
        return index

    def search_rabitq(self, index, probes, mode):
        handle = ctypes.c_size_t(self.resources.get_c_obj())
        probes, mode = ctypes.c_uint32(probes), ctypes.c_int(RABITQ_MODES[mode])

        def search(queries, out):
            self.rabitq_call("search", handle, index, probes, mode, ctypes.c_void_p(queries.data.ptr), ctypes.c_int64(queries.shape[0]),
                             ctypes.c_int64(queries.shape[1]), ctypes.c_int64(out[0].shape[1]), ctypes.c_void_p(out[0].data.ptr),
                             ctypes.c_void_p(out[1].data.ptr))
        return search

    def refined(self, rows, queries, candidates, out):
        self.refine(rows, queries, candidates, metric="sqeuclidean", indices=out[0], distances=out[1], resources=self.resources)

    def quantized(self, rows, queries):
        """Rows and queries in steps of int8, by the same scale."""
        scale = self.scalar.train(self.scalar.QuantizerParams(), rows, resources=self.resources)
        made = []
        for vectors in (rows, queries):
            made.append(self.cupy.empty(vectors.shape, np.int8))
            self.scalar.transform(scale, vectors, output=made[-1], resources=self.resources)
        self.wait()
        return made

    def as_half(self, vectors):
        half = vectors.astype(np.float16)
        self.cupy.cuda.Device().synchronize()
        return half

    def over(self, index, rows):
        """The same graph over rows of another type; what it refers to stays with it."""
        graph = self.cupy.asarray(index.graph)
        made = self.cagra.from_graph(graph, rows, metric="sqeuclidean", resources=self.resources)
        self.wait()
        self.referred.append((graph, rows))
        return made

    def search_cagra(self, index, itopk, width):
        params = self.cagra.SearchParams(itopk_size=itopk, search_width=width, algo="auto")

        def search(queries, out):
            self.cagra.search(params, index, queries, out[0].shape[1], neighbors=out[0], distances=out[1], resources=self.resources)
        return search


class Torch:
    """Exact search by PyTorch: products with all rows, then the k least, in chunks of queries."""

    name = "PyTorch"

    def __init__(self):
        import torch
        torch.backends.cuda.matmul.allow_tf32 = False
        self.torch = torch
        self.version, self.device = torch.__version__, torch.cuda.get_device_name(0)

    def resident(self, array):
        return self.torch.from_numpy(np.ascontiguousarray(array)).cuda()

    def fetch(self, array):
        return array.cpu().numpy()

    def outputs(self, count, k, ids):
        return self.torch.empty((count, k), dtype=self.torch.int64, device="cuda"), self.torch.empty((count, k), device="cuda")

    def as_half(self, vectors):
        return vectors.half()

    def brute(self, rows):
        """Rows times -2, and their squared lengths: a distance but for the query's own length is the sum of a product and one of these."""
        return (rows * -2).T, (rows.float() ** 2).sum(dim=1)[None, :]

    def search_exact(self, pair):
        turned, norms = pair
        at_once = max(1, 2 ** 30 // turned.shape[1])
        product = (lambda some: self.torch.addmm(norms, some, turned)) if turned.dtype == self.torch.float32 else \
            (lambda some: self.torch.mm(some, turned, out_dtype=self.torch.float32).add_(norms))

        def search(queries, out):
            for at in range(0, len(queries), at_once):
                part = slice(at, at + at_once)
                self.torch.topk(product(queries[part]), out[0].shape[1], largest=False, out=(out[1][part], out[0][part]))
        return search

    def exact(self, pair, batches, out):
        search = self.search_exact(pair)

        def once(turn):
            search(batches[turn % len(batches)], out)
            self.wait()
        return once

    def distances(self, rows, queries, ids):
        out = np.empty(ids.shape)
        for at in range(0, len(ids), 500):
            found = rows[self.torch.from_numpy(ids[at:at + 500].astype(np.int64)).cuda()].double()
            difference = found - queries[at:at + 500, None, :].double()
            out[at:at + 500] = (difference * difference).sum(dim=2).cpu().numpy()
        return out

    def wait(self):
        self.torch.cuda.synchronize()

    def device_us(self, call, runs):
        taken = []
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        for turn in range(runs):
            self.torch.cuda._sleep(DELAY_CYCLES)
            begin.record()
            call(turn)
            end.record()
            end.synchronize()
            taken.append(begin.elapsed_time(end) * 1e3)
        return statistics.median(taken)


class DryLists(Dry):
    """All of them by numpy: a search looks at a part of the rows that grows with its settings."""

    def wait(self):
        pass

    def device_us(self, call, runs):
        return median_us(self, call) * 0.9

    def memory(self):
        return 0, 0

    def part_search(self, rows, share):
        def search(queries, out):
            self.find(rows, [queries], share, out)(0)
        return search

    def build_pq(self, rows, lists, dims, bits):
        if bits == 5:
            raise RuntimeError("a build that fails")
        return rows

    def build_rabitq(self, rows, lists, bits):
        return rows

    def search_pq(self, index, probes, mode):
        return self.part_search(index, 1 - 0.8 / probes ** 0.7)

    search_rabitq = search_pq

    def search_cagra(self, index, itopk, width):
        return self.part_search(index, 1 - 3.2 / (itopk * width ** 0.5))

    def search_exact(self, index):
        return self.part_search(index, 1)

    def refined(self, rows, queries, candidates, out):
        distances = self.distances(rows, queries, candidates)
        out[0][:] = np.take_along_axis(candidates, np.argsort(distances, axis=1), 1)[:, :out[0].shape[1]]

    def quantized(self, rows, queries):
        scale = 127 / np.abs(rows).max()
        return [np.clip(np.rint(some * scale), -127, 127).astype(np.int8) for some in (rows, queries)]

    def as_half(self, vectors):
        return vectors.astype(np.float16)

    def over(self, index, rows):
        return rows


class Record:
    """A file of what was measured, one line of JSON for each thing, there as soon as it is known."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")

    def add(self, **what):
        self.file.write(json.dumps(what) + "\n")
        self.file.flush()


def one_line(error):
    return " ".join(("%s: %s" % (type(error).__name__, error)).split())[:300]


def median_us(peer, call):
    """Median microseconds of a call and of waiting for it."""
    taken = []
    for run in range(MOST_RUNS):
        start = time.perf_counter()
        call(run)
        peer.wait()
        taken.append(time.perf_counter() - start)
        if len(taken) >= LEAST_RUNS and sum(taken) > RUN_SECONDS:
            break
    return statistics.median(taken) * 1e6


class Call:
    """A search of one batch after the other: queued by calling it with a number, waited for by whoever calls."""

    def __init__(self, peer, data, search, batch, queries=None, ids=np.int64, ratio=1):
        queries = data.queries if queries is None else queries
        self.peer, self.data, self.search, self.ratio = peer, data, search, ratio
        self.batches = [queries[at:at + batch] for at in range(0, data.count - batch + 1, batch)][:MOST_BATCHES]
        self.out = peer.outputs(batch, K, ids)
        self.candidates = peer.outputs(batch, K * ratio, ids) if ratio > 1 else None

    def __call__(self, turn):
        queries = self.batches[turn % len(self.batches)]
        if self.ratio == 1:
            self.search(queries, self.out)
        else:
            self.search(queries, self.candidates)
            self.peer.refined(self.data.rows, queries, self.candidates[0], self.out)

    def once(self, turn):
        self(turn)
        self.peer.wait()

    def recall(self):
        return recall_of(self.peer, self.data, self.once, self.out, self.batches)

    def look(self):
        """Microseconds of one call: what to expect, the better of two."""
        taken = []
        for turn in range(2):
            start = time.perf_counter()
            self.once(turn)
            taken.append((time.perf_counter() - start) * 1e6)
        return min(taken)

    def times(self, expected):
        """Microseconds by the clock and between events."""
        for turn in range(WARM_UPS if expected < SLOW_US else 0):
            self.once(turn)
        return median_us(self.peer, self), self.peer.device_us(self, RUNS if expected < SLOW_US else LEAST_RUNS)


def beaten(points, recall, time_us, factor):
    """Whether another setting finds as much, so many times as fast."""
    return any(found >= recall and taken * factor < time_us for found, taken, *_ in points)


def build(peer, record, method, what, make):
    """Build an index; the seconds and the memory that stays taken."""
    step("building: " + what)
    try:
        before, start = peer.memory(), time.perf_counter()
        index = make()
        seconds = time.perf_counter() - start
        after = peer.memory()
    except Exception as error:
        record.add(kind="failed", method=method, setting=what, why=one_line(error))
        return None
    record.add(kind="build", method=method, index=what, seconds=seconds, bytes=after[0] - before[0], beside=after[1] - before[1])
    return index


def python_call(peer, data, record, method, search, **options):
    """What one call costs beside the device's work: the smallest search, by the clock and between events."""
    wall, device = Call(peer, data, search, 1, **options).times(0)
    record.add(kind="call", method=method, wall=wall, device=device)


def refined_name(method, ratio):
    return method + ", refined" if ratio > 1 else method


def sweep_lists(peer, data, arguments, record, method, indexes):
    """
    Measure lists of codes: (name, how to build, how to search with probes and a mode, the modes and ratios of candidates to try) of each index. Recall is that
    of the largest batch, whose answers are those of smaller ones; these are asked with the settings that are on its front, or near.
    """
    kept = []                           # (recall, microseconds, index, setting, search, ratio)
    most = max(arguments.batch)
    until_small = seconds_so_far() + LARGE_SHARE * (arguments.seconds - seconds_so_far())
    for at, (name, make, searching, settings) in enumerate(indexes):
        left = until_small - seconds_so_far()
        index = build(peer, record, method, name, make) if left > 0 else None
        until = seconds_so_far() + left / (len(indexes) - at)
        if index is None:
            continue
        step("searching: " + name)
        for mode, ratio in settings:
            last = -1
            for probes in (p for p in arguments.probes if p <= arguments.lists):
                if seconds_so_far() > until:
                    break
                setting = "%s, probes %d%s" % (mode, probes, ", of %d" % (K * ratio) if ratio > 1 else "")
                try:
                    call = Call(peer, data, searching(index, probes, mode), most, ratio=ratio)
                    recall, expected = call.recall(), call.look()
                    if recall >= LEAST_RECALL and not beaten(kept, recall, expected, 2):
                        wall, device = call.times(expected)
                        record.add(kind="point", method=refined_name(method, ratio), index=name, setting=setting, batch=most, recall=recall, wall=wall,
                                   device=device)
                        kept.append((recall, device, name, setting, call.search, ratio))
                except Exception as error:
                    record.add(kind="failed", method=method, setting="%s, %s" % (name, setting), why=one_line(error))
                    break
                if recall >= RECALLS[-1] or recall < last + LEAST_GAIN:
                    break                       # more probes cost more, and find nothing
                last = recall
    for batch in (b for b in arguments.batch if b != most):
        step("batches of %d" % batch)
        for recall, _, name, setting, search, ratio in sorted((k for k in kept if not beaten(kept, k[0], k[1], FRONT)), key=lambda k: k[1]):
            if seconds_so_far() > arguments.seconds:
                return
            try:
                call = Call(peer, data, search, batch, ratio=ratio)
                wall, device = call.times(call.look())
            except Exception as error:
                record.add(kind="failed", method=method, setting="%s, %s, batch %d" % (name, setting, batch), why=one_line(error))
                continue
            record.add(kind="point", method=refined_name(method, ratio), index=name, setting=setting, batch=batch, recall=recall, wall=wall, device=device)


def pq(peer, data, arguments, record):
    small = data.rows[:SMALL_ROWS]
    index = peer.build_pq(small, SMALL_LISTS, max(arguments.dims // 16 * 8, 8), 8)
    python_call(peer, data, record, "cuVS IVF-PQ", peer.search_pq(index, 4, "half"))
    python_call(peer, data, record, "cuVS IVF-PQ, refined", peer.search_pq(index, 4, "half"), ratio=4)
    indexes = []
    # Many bits need fewer candidates; float8 and float sums are variants of the same codes.
    for part, bits, ratios in ((2, 8, (2, 4, 1)), (2, 5, (4, 2, 10)), (4, 8, (4, 10, 2)), (2, 4, (10, 4))):
        dims = arguments.dims // part
        settings = [("half", ratio) for ratio in ratios] + [("float8", ratios[0]), ("half, float sums", ratios[0])]
        indexes.append(("%d parts of %d bits" % (dims, bits), lambda dims=dims, bits=bits: peer.build_pq(data.rows, arguments.lists, dims, bits),
                        peer.search_pq, settings))
    sweep_lists(peer, data, arguments, record, "cuVS IVF-PQ", indexes)


def rabitq(peer, data, arguments, record):
    index = peer.build_rabitq(data.rows[:SMALL_ROWS], SMALL_LISTS, 3)
    python_call(peer, data, record, "cuVS IVF-RaBitQ", peer.search_rabitq(index, 4, "quant4"))
    indexes = []
    for bits, ratios in ((5, (1, 2)), (3, (2, 1, 4)), (8, (1,)), (1, (10, 4))):
        settings = [("quant4", ratio) for ratio in ratios] + [(mode, ratios[0]) for mode in ("quant8", "lut16", "lut32")]
        indexes.append(("%d bits" % bits, lambda bits=bits: peer.build_rabitq(data.rows, arguments.lists, bits), peer.search_rabitq, settings))
    sweep_lists(peer, data, arguments, record, "cuVS IVF-RaBitQ", indexes)


def sweep_cagra(peer, data, arguments, record, method, what, index, queries):
    """Measure a graph with every setting and batch; recall is each batch size's, since another one may take another kernel."""
    for batch in arguments.batch:
        kept = []
        for width in arguments.width:
            for itopk in arguments.itopk:
                if seconds_so_far() > arguments.seconds:
                    return
                setting = "itopk %d, width %d" % (itopk, width)
                try:
                    call = Call(peer, data, peer.search_cagra(index, itopk, width), batch, queries=queries, ids=np.uint32)
                    recall, expected = call.recall(), call.look()
                    if recall >= LEAST_RECALL and not beaten(kept, recall, expected, 2):
                        wall, device = call.times(expected)
                        record.add(kind="point", method=method, index=what, setting=setting, batch=batch, recall=recall, wall=wall, device=device)
                        kept.append((recall, wall))
                except Exception as error:
                    record.add(kind="failed", method=method, setting="%s, batch %d" % (setting, batch), why=one_line(error))
                    continue
                if recall >= RECALLS[-1]:
                    break


def cagra(peer, data, arguments, record):
    index = peer.build(data.rows[:SMALL_ROWS], arguments.algo, arguments.degree)
    python_call(peer, data, record, "cuVS CAGRA", peer.search_cagra(index, 32, 1), ids=np.uint32)
    method = "cuVS CAGRA, %s rows"
    what = "%s, degree %d" % (arguments.algo, arguments.degree)
    first = build(peer, record, method % "float", what, lambda: peer.build(data.rows, arguments.algo, arguments.degree))
    if first is None:
        return
    kinds = {"half": lambda: (peer.as_half(data.rows), peer.as_half(data.queries)), "int8": lambda: peer.quantized(data.rows, data.queries),
             "float": lambda: (data.rows, data.queries)}
    for kind, make in kinds.items():
        if seconds_so_far() > arguments.seconds:
            return
        step("searching: %s rows" % kind)
        try:
            rows, queries = make()
            index = first if kind == "float" else peer.over(first, rows)
        except Exception as error:
            record.add(kind="failed", method=method % kind, setting=what, why=one_line(error))
            continue
        sweep_cagra(peer, data, arguments, record, method % kind, what, index, queries)


def torch(peer, data, arguments, record):
    python_call(peer, data, record, "PyTorch, exact, float rows", peer.search_exact(peer.brute(data.rows[:1000])))
    for kind in ("float", "half"):
        rows, queries = (data.rows, data.queries) if kind == "float" else (peer.as_half(data.rows), peer.as_half(data.queries))
        search = peer.search_exact(peer.brute(rows))
        for batch in arguments.batch:
            step("exact: %s, batches of %d" % (kind, batch))
            if seconds_so_far() > arguments.seconds:
                return
            try:
                call = Call(peer, data, search, batch, queries=queries)
                recall = call.recall()
                wall, device = call.times(call.look())
            except Exception as error:
                record.add(kind="failed", method="PyTorch, exact, %s rows" % kind, setting="batch %d" % batch, why=one_line(error))
                continue
            record.add(kind="point", method="PyTorch, exact, %s rows" % kind, index="", setting="all rows", batch=batch, recall=recall, wall=wall, device=device)


PARTS = {"pq": pq, "rabitq": rabitq, "cagra": cagra, "torch": torch}


def parse():
    parser = argparse.ArgumentParser(description="one library's part of bench/peers_lists")
    add = parser.add_argument
    add("part", choices=PARTS)
    add("--out", required=True, help="where the lines of what was measured are appended")
    add("--base", required=True, help="rows, raw little-endian float32")
    add("--query", required=True, help="queries, likewise")
    add("-n", "--rows", type=int, required=True)
    add("-d", "--dims", type=int, required=True)
    add("-q", "--queries", type=int, default=10000)
    add("--lists", type=int, default=4096)
    add("--batch", type=numbers, default=numbers("10000,64,1,256"), help="the most important first")
    add("--probes", type=numbers, default=numbers("4,8,12,16,24,32,48,64,96,128,256"))
    add("--itopk", type=numbers, default=numbers("32,64,96,128,160,192,256,320,384,512"), help="cuVS rounds up to a multiple of 32")
    add("--width", type=numbers, default=numbers("1,2,3,4"))
    add("--algo", default="nn_descent", help="how CAGRA's graph is built")
    add("--degree", type=int, default=32)
    add("--seconds", type=float, default=30, help="begin nothing further after so many, from when the vectors are there")
    add("--dry", action="store_true", help="numpy in place of the library")
    arguments = parser.parse_args()
    arguments.queries = min(arguments.queries, os.path.getsize(arguments.query) // (4 * arguments.dims))
    arguments.batch = list(dict.fromkeys(min(batch, arguments.queries) for batch in arguments.batch))
    return arguments


def main():
    arguments = parse()
    record = Record(arguments.out)
    try:
        peer = DryLists() if arguments.dry else Torch() if arguments.part == "torch" else CuvsLists()
        record.add(kind="peer", name=peer.name, version=peer.version, device=peer.device)
        step("reading, true neighbours")
        data = Data(peer, arguments, False)
        arguments.seconds += seconds_so_far()
        PARTS[arguments.part](peer, data, arguments, record)
    except Exception as error:
        record.add(kind="failed", method=arguments.part, setting="the part", why=one_line(error))
        raise
    finally:
        record.add(kind="end", part=arguments.part, seconds=seconds_so_far(), over=seconds_so_far() > arguments.seconds)


if __name__ == "__main__":
    sys.exit(main())
