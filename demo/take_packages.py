#!/usr/bin/env python3
"""take_packages.py DATA_DIR OUT_DIR

Take the demo's part of the Debian packages and write it as gzipped binary COPY files, which plain psql loads.

DATA_DIR holds the full set: packages.tsv.xz (id, name, section, size, summary), packages.f16.npy, queries.tsv,
queries.f16.npy and truth.npy (the 100 nearest ids of each query, exact). OUT_DIR receives packages.copy.gz and
queries.copy.gz. The part holds the 20 nearest packages of every natural question and of 300 manual-page sentences,
so that their exact answers are those of the full set, and is filled up with packages drawn at random from the rest.
The same input gives the same bytes. Needs numpy; the demo itself does not need this script.
"""
import gzip
import lzma
import os
import random
import struct
import sys

import numpy as np

NATURAL = 123            # queries 0 .. 122 are questions people ask, the rest sentences of manual pages
MANUAL_TAKEN = 300       # of the manual-page sentences
NEAREST_KEPT = 20        # of each query taken
ROWS = 20000             # packages in all: just under 16 MB compressed
SEED = 20

# The questions that the demo prints, in its order: those whose answers anybody can judge at a glance.
SHOWN = [44, 5, 2, 6, 3, 113, 12, 11, 51, 53, 94, 95, 39, 83, 101, 108, 31, 62, 76, 111]

COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
COPY_TAIL = struct.pack(">h", -1)


def integer(value):
    """A binary COPY field of type integer, NULL for None."""
    return struct.pack(">i", -1) if value is None else struct.pack(">ii", 4, value)


def text(value):
    """A binary COPY field of type text."""
    raw = value.encode()
    return struct.pack(">i", len(raw)) + raw


def halfvec(row):
    """A binary COPY field of pgvector's type halfvec: dimension, an unused word, big-endian halves."""
    raw = struct.pack(">HH", len(row), 0) + row.astype(">f2").tobytes()
    return struct.pack(">i", len(raw)) + raw


def write_copy(path, rows):
    """Write rows, each a list of encoded fields, as one compressed COPY file without a time stamp in it."""
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        out.write(COPY_HEAD)
        for fields in rows:
            out.write(struct.pack(">h", len(fields)) + b"".join(fields))
        out.write(COPY_TAIL)
    print(f"{path}: {os.path.getsize(path)} bytes")


def main(data, out):
    """Choose queries and packages and write both files."""
    with lzma.open(data + "/packages.tsv.xz", "rt", encoding="utf-8") as lines:
        packages = [line.rstrip("\n").split("\t") for line in lines]
    with open(data + "/queries.tsv", encoding="utf-8") as lines:
        queries = [line.rstrip("\n").split("\t", 1)[1] for line in lines]
    vectors = np.load(data + "/packages.f16.npy", mmap_mode="r")
    query_vectors = np.load(data + "/queries.f16.npy")
    truth = np.load(data + "/truth.npy")
    if not (len(packages) == len(vectors) and len(queries) == len(query_vectors) == len(truth)):
        sys.exit("take_packages.py: the files do not belong together")

    draw = random.Random(SEED)
    taken = list(range(NATURAL)) + sorted(draw.sample(range(NATURAL, len(queries)), MANUAL_TAKEN))
    rows = {int(row) for query in taken for row in truth[query, :NEAREST_KEPT]}
    near = len(rows)
    rest = [row for row in range(len(packages)) if row not in rows]
    rows = sorted(rows | set(draw.sample(rest, ROWS - near)))

    write_copy(out + "/packages.copy.gz", (
        [integer(row), text(packages[row][1]), text(packages[row][2]), integer(int(packages[row][3])),
         text(packages[row][4]), halfvec(vectors[row])] for row in rows))
    write_copy(out + "/queries.copy.gz", (
        [integer(query), integer(SHOWN.index(query) + 1 if query in SHOWN else None),
         text(queries[query]), halfvec(query_vectors[query])] for query in taken))
    print(f"{len(rows)} packages, {near} of them near a query; {len(taken)} queries, {len(SHOWN)} of them shown")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
