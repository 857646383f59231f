#!/usr/bin/env python3
"""
raw_vectors.py
		Makes the raw files that bench/engine and bench/peer_cuvs.py read: base.f32, query.f32 and the same as halves, base.f16, query.f16.

raw_vectors.py DIRECTORY                    base.f32 and query.f32 are there (-d DIMS): add the halves
raw_vectors.py DIRECTORY packages           from the demo's packages: 20,000 x 384, stored as halves
raw_vectors.py DIRECTORY BASE.npy QUERY.npy from arrays of halves or floats

Queries are repeated until there are 10,000. Prints rows and dimensions. Needs numpy.
"""
import gzip
import os
import struct
import sys

import numpy as np

QUERIES = 10000
DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "demo", "data")


def halfvecs(path):
    """The last column, a halfvec, of a binary COPY file."""
    with gzip.open(path) as file:
        data = file.read()
    at = 19 + struct.unpack_from(">i", data, 15)[0]
    vectors = []
    while (columns := struct.unpack_from(">h", data, at)[0]) >= 0:
        at += 2
        for _ in range(columns):
            length = struct.unpack_from(">i", data, at)[0]
            value = data[at + 4:at + 4 + max(length, 0)]
            at += 4 + len(value)
        vectors.append(np.frombuffer(value, ">f2", offset=4))       # after dimensions and an unused number, two bytes each
    return np.array(vectors, "<f2")


def write(directory, name, vectors):
    """Both files of some vectors; an existing float file stays as it is."""
    path = os.path.join(directory, name)
    if not os.path.exists(path + ".f32"):
        vectors.astype("<f4").tofile(path + ".f32")
    vectors.astype("<f2").tofile(path + ".f16")


def main(directory, dims, *source):
    """Make what is missing, and print its shape."""
    if not source:
        base, query = (np.fromfile(os.path.join(directory, name), "<f4").reshape(-1, dims) for name in ("base.f32", "query.f32"))
    elif source == ("packages",):
        base, query = halfvecs(DEMO + "/packages.copy.gz"), halfvecs(DEMO + "/queries.copy.gz")
    else:
        base, query = np.load(source[0]), np.load(source[1])
    query = np.resize(query, (QUERIES, query.shape[1]))
    write(directory, "base", base)
    write(directory, "query", query)
    print(*base.shape)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    dims = 0
    if "-d" in arguments:
        at = arguments.index("-d")
        dims = int(arguments[at + 1])
        del arguments[at:at + 2]
    if len(arguments) not in (1, 2, 3) or len(arguments) == 1 and dims == 0 or len(arguments) == 2 and arguments[1] != "packages":
        sys.exit(__doc__)
    main(arguments[0], dims, *arguments[1:])
