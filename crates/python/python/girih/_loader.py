"""Loaders: batches epoch by epoch."""

from collections.abc import Mapping, Sequence
from typing import Any, overload

from numpy.typing import ArrayLike

from ._girih import BatchLoader, Epoch, FeatureStore, Graph, Sampler, TimedGraph, TypedGraph, TypedSampler


def sampler_of(
    graph: Graph | TypedGraph | TimedGraph | Sampler | TypedSampler, num_neighbors: Any, options: dict[str, Any]
) -> Sampler | TypedSampler:
    """Sampler of a loader's arguments."""
    if isinstance(graph, (Sampler, TypedSampler)):
        if num_neighbors is not None or options:
            raise TypeError("a sampler has its num_neighbors and options already; leave them out")
        return graph
    if num_neighbors is None:
        raise TypeError("num_neighbors is missing: one number a layer, such as [15, 10, 5]")
    if isinstance(graph, TypedGraph):
        return TypedSampler(graph, num_neighbors, **options)
    if isinstance(graph, TimedGraph):
        return Sampler.timed(graph, list(num_neighbors), **options)
    return Sampler(graph, list(num_neighbors), **options)


@overload
def store_of(features: FeatureStore | ArrayLike) -> FeatureStore: ...
@overload
def store_of(features: FeatureStore | ArrayLike | None) -> FeatureStore | None: ...
def store_of(features: FeatureStore | ArrayLike | None) -> FeatureStore | None:
    """Store of a loader's features, if there are any."""
    return features if features is None or isinstance(features, FeatureStore) else FeatureStore(features)


def stores_of(features: Mapping[str, FeatureStore | ArrayLike]) -> dict[str, FeatureStore]:
    """Stores of a loader's features by node type."""
    return {of: store_of(rows) for of, rows in features.items()}


class _Epochs:
    """Epochs of a native loader, which pickles as the arguments that made it."""

    _loader: BatchLoader
    _made_by: tuple[tuple[Any, ...], dict[str, Any]]

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Epoch:
        return iter(self._loader)

    def epoch(self, number: int, *, first: int = 0) -> Epoch:
        """Epoch by its number, from batch `first` on, for a training that goes on after a stop."""
        return self._loader.epoch(number, first=first)

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), *self._made_by)


class NeighborLoader(_Epochs):
    """Batches of sampled neighbors of `seeds`, made ahead by `threads` threads; each `iter()` is the next epoch.

    graph: a `Graph`, a `TypedGraph`, a `TimedGraph`, or a sampler, which has num_neighbors and the options already.
    seeds: ids of nodes, or a mask of all nodes. Of a typed graph, the pair of a node type and its seeds.
    num_neighbors: number of neighbors a hop, from the seeds outward; -1 for all. See `TypedSampler` for typed graphs.
    features: a `FeatureStore`, or rows of features; then batches have `x`, the rows of their nodes. Of a typed graph, a
        dict of them by node type.
    times: time of each seed, of a `TimedGraph`.
    threads: 0 to sample when a batch is asked for.
    options: those of `Sampler`, `TypedSampler` or `Sampler.timed`.

    A batch depends on (seed, epoch, batch) alone, on any number of threads.
    """

    def __init__(
        self,
        graph: Graph | TypedGraph | TimedGraph | Sampler | TypedSampler,
        seeds: ArrayLike | tuple[str, ArrayLike],
        num_neighbors: Sequence[int] | Mapping[Any, Sequence[int]] | None = None,
        *,
        batch_size: int = 1024,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        threads: int = 1,
        features: FeatureStore | ArrayLike | Mapping[str, FeatureStore | ArrayLike] | None = None,
        times: ArrayLike | None = None,
        **options: Any,
    ) -> None:
        self._made_by = (graph, seeds, num_neighbors), dict(
            batch_size=batch_size, shuffle=shuffle, drop_last=drop_last, seed=seed, threads=threads, features=features,
            times=times, **options,
        )  # fmt: skip
        self.sampler = sampler_of(graph, num_neighbors, options)
        self._loader = BatchLoader(
            self.sampler,
            seeds,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=seed,
            threads=threads,
            features=stores_of(features) if isinstance(features, Mapping) else store_of(features),
            times=times,
        )


class SubgraphLoader(_Epochs):
    """Subgraphs of a sampler without seeds (`Sampler.clusters`, `Sampler.saint`), `num_batches` an epoch."""

    def __init__(
        self,
        sampler: Sampler,
        num_batches: int,
        *,
        seed: int = 0,
        threads: int = 1,
        features: FeatureStore | ArrayLike | None = None,
    ) -> None:
        self._made_by = (sampler, num_batches), dict(seed=seed, threads=threads, features=features)
        self.sampler = sampler
        self._loader = BatchLoader(sampler, None, seed=seed, threads=threads, num_batches=num_batches, features=store_of(features))


def _remake(kind: type[Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return kind(*arguments, **options)
