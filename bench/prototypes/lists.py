#!/usr/bin/env python3
"""
What might be added to lists, tried on real vectors before it is written in C: a second assignment of rows, lists of more equal size, rotations for pq.

    lists.py ROWS.npy QUERIES.npy [LISTS ...]

ROWS and QUERIES are arrays (n x d) of floats or halves. Needs numpy. Of each number of lists: how many codes a query reads until the lists read hold a
share of the ten nearest rows, which every second query is asked for. Of the first number also pq: the share of the ten nearest among the rows that are
compared exactly, the nearest by estimate.
"""
import sys
import numpy as np

PROBED = 48				# lists read where pq is measured
ROUNDS = 10
rng = np.random.default_rng(1)


def nearest(rows, centroids, prices=0):
    """The nearest centroid of each row; a price is added to half the squared distance."""
    norms = (centroids * centroids).sum(1) / 2 + prices
    return np.concatenate([(norms - rows[i:i + 8192] @ centroids.T).argmin(1) for i in range(0, len(rows), 8192)])


def means(rows, lists, centroids):
    """Centroids of the rows assigned to each; those without rows stay."""
    order = np.argsort(lists, kind='stable')
    begins = np.searchsorted(lists[order], np.arange(len(centroids) + 1))
    some = np.diff(begins) > 0
    moved = centroids.copy()
    moved[some] = np.add.reduceat(rows[order], begins[:-1][some], axis=0) / np.diff(begins)[some, None]
    return moved


def kmeans(rows, count, rounds=ROUNDS, seed=0):
    centroids = rows[np.random.default_rng(seed).choice(len(rows), count, replace=False)].copy()
    for _ in range(rounds):
        centroids = means(rows, nearest(rows, centroids), centroids)
    return centroids


class Coarse:
    """Lists, the rows in them, and how far queries have to read."""

    def __init__(self, rows, queries, truth, centroids):
        self.rows, self.queries, self.truth, self.centroids = rows, queries, truth, centroids
        self.lists = nearest(rows, centroids)
        self.order = ((centroids * centroids).sum(1) / 2 - queries @ centroids.T).argsort(1)
        self.rank = self.order.argsort(1)

    def codes_at(self, share, others=None):
        """Codes a query reads until it has met that share of the nearest rows, in their lists or in the others' of a second assignment."""
        sizes = np.bincount(self.lists, minlength=len(self.centroids))
        met = np.take_along_axis(self.rank, self.lists[self.truth], 1)
        if others is not None:
            sizes = sizes + np.bincount(others[others != self.lists], minlength=len(self.centroids))
            met = np.minimum(met, np.take_along_axis(self.rank, others[self.truth], 1))
        probes = int(np.sort(met.ravel())[int(np.ceil(share * met.size)) - 1]) + 1
        return sizes[self.order[:, :probes]].sum(1).mean()

    def second_lists(self, weight, share):
        """A second list of that share of the rows, those nearest to a border: near, and (weight) with a residual at a right angle to the first."""
        second, border = np.empty(len(self.rows), int), np.empty(len(self.rows))
        for i in range(0, len(self.rows), 4096):
            part = slice(i, i + 4096)
            rows, own = self.rows[part], self.centroids[self.lists[part]]
            residual = rows - own
            length = np.linalg.norm(residual, axis=1, keepdims=True) + 1e-9
            square = (rows * rows).sum(1)[:, None] - 2 * rows @ self.centroids.T + (self.centroids ** 2).sum(1)
            along = (rows * residual / length).sum(1)[:, None] - residual / length @ self.centroids.T
            cost = square + weight * along ** 2
            cost[np.arange(len(rows)), self.lists[part]] = np.inf
            second[part] = cost.argmin(1)
            border[part] = np.sqrt(np.maximum(square[np.arange(len(rows)), second[part]], 0)) / length[:, 0]
        return np.where(border <= np.quantile(border, share), second, self.lists)

    def balanced(self, step):
        """The same with centroids trained with a price on large lists; rows go to the nearest, as they do when they are linked."""
        centroids, prices = self.centroids, np.zeros(len(self.centroids))
        for _ in range(15):
            lists = nearest(self.rows, centroids, prices)
            prices += step * (np.bincount(lists, minlength=len(centroids)) * len(centroids) / len(self.rows) - 1)
            centroids = means(self.rows, lists, centroids)
        return Coarse(self.rows, self.queries, self.truth, centroids)


def measure_pq(coarse, rotation, parts):
    """pq of rotated residuals: its error, and the share of the nearest rows among so many by estimate."""
    residuals = (coarse.rows - coarse.centroids[coarse.lists]) @ rotation
    sample = residuals[rng.choice(len(residuals), min(20000, len(residuals)), replace=False)]
    decoded = np.empty_like(residuals)
    for part, dims in enumerate(np.array_split(np.arange(residuals.shape[1]), parts)):
        words = kmeans(sample[:, dims], 256, 8, part)
        decoded[:, dims] = words[nearest(residuals[:, dims], words)]
    error = ((residuals - decoded) ** 2).sum() / (residuals ** 2).sum()
    decoded = decoded @ rotation.T + coarse.centroids[coarse.lists]
    norms = (decoded * decoded).sum(1)
    places = []
    for query, order, truth in zip(coarse.queries, coarse.order, coarse.truth):
        read = np.nonzero(np.isin(coarse.lists, order[:PROBED]))[0]
        best = read[np.argsort(norms[read] - 2 * decoded[read] @ query)[:400]]
        place = {row: i for i, row in enumerate(best)}
        places.append([place.get(row, len(norms)) for row in truth])
    found = [f'{np.mean(np.array(places) < count):.3f}' for count in (10, 20, 40, 80, 160, 320)]
    return f'{error:.3f} | ' + ' | '.join(found)


def rotations(coarse, parts):
    """None, a random one, the principal axes dealt out to sub-spaces of like volume, and that improved in turns with the codewords (OPQ)."""
    dims = coarse.rows.shape[1]
    yield 'none', np.eye(dims, dtype=np.float32)
    yield 'random', np.linalg.qr(rng.standard_normal((dims, dims)))[0].astype(np.float32)
    residuals = coarse.rows - coarse.centroids[coarse.lists]
    values, axes = np.linalg.eigh(np.cov(residuals[::4].T))
    groups, volumes = [[] for _ in range(parts)], np.zeros(parts)
    for axis in values.argsort()[::-1]:
        group = min((g for g in range(parts) if len(groups[g]) < dims // parts), key=lambda g: volumes[g])
        groups[group].append(axis)
        volumes[group] += np.log(max(values[axis], 1e-12))
    rotation = axes[:, np.concatenate(groups)].astype(np.float32)
    yield 'principal axes', rotation
    sample = residuals[rng.choice(len(residuals), min(20000, len(residuals)), replace=False)]
    for _ in range(8):
        rotated = sample @ rotation
        decoded = np.empty_like(rotated)
        for part, columns in enumerate(np.array_split(np.arange(dims), parts)):
            words = kmeans(rotated[:, columns], 256, 3, part)
            decoded[:, columns] = words[nearest(rotated[:, columns], words)]
        left, _, right = np.linalg.svd(sample.T @ decoded)
        rotation = (left @ right).astype(np.float32)
    yield 'OPQ, 8 turns', rotation


def main():
    rows = np.load(sys.argv[1]).astype(np.float32)
    queries = np.load(sys.argv[2]).astype(np.float32)[::2]
    truth = np.concatenate([((rows * rows).sum(1) / 2 - queries[i:i + 64] @ rows.T).argsort(1)[:, :10] for i in range(0, len(queries), 64)])
    numbers = [int(word) for word in sys.argv[3:]] or [int(np.sqrt(len(rows)))]
    shares = (0.9, 0.95)
    print(f'{len(rows)} x {rows.shape[1]}, {len(queries)} queries\n\n| lists | | codes at {shares[0]} | at {shares[1]} | codes kept |\n|---|---|---|---|---|')
    kept = None
    for number in numbers:
        coarse = Coarse(rows, queries, truth, kmeans(rows, number))
        kept = kept or coarse

        def tell(what, source, others=None):
            codes = ' | '.join(f'{source.codes_at(share, others):.0f}' for share in shares)
            more = 0 if others is None else np.mean(others != source.lists)
            print(f'| {number} | {what} | {codes} | {1 + more:.2f} |', flush=True)

        tell('as they are', coarse)
        for step in (0.0004, 0.001, 0.002):
            tell(f'balanced, {step}', coarse.balanced(step))
        for weight in (0, 1):
            for share in (0.1, 0.3, 1):
                tell(f'second list of {share:.0%}, weight {weight}', coarse, coarse.second_lists(weight, share))
    print(f'\n{numbers[0]} lists, {PROBED} read\n\n| parts | rotation | error | ' +
          ' | '.join(f'of {count}' for count in (10, 20, 40, 80, 160, 320)) + ' |\n|' + '---|' * 9)
    for parts in (48, 24, 96):
        for name, rotation in rotations(kept, parts):
            print(f'| {parts} | {name} | {measure_pq(kept, rotation, parts)} |', flush=True)


if __name__ == '__main__':
    main()
