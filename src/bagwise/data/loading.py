"""Bags for one's own training loop: a dataset whose items are bags, and what puts them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from bagwise.bags import Bags
from bagwise.data import inputs as reading
from bagwise.data.bag_data import BagData
from bagwise.data.inputs import Inputs
from bagwise.errors import InputError, InputTypeError

_KNOWN = "counts"  # the name of what is known of a bag, where an item is a dictionary
_BAGS = "bags"  # and of all of them in a batch


class BagDataset(Dataset[Any]):
    """A map-style dataset whose item is a bag: its instances (K, ...) and its counts (C,), or a
    `Bags` of one bag where counts are not exact, labels are known or rows have weights.

    Where an instance is a dictionary, as that of a tokenized text, an item is one too: of the bag's
    instances by name, and its counts as "counts".

    Args:
        inputs: as `BagData` takes them; the items of a `Dataset` are fetched bag by bag, by the
            workers of the `DataLoader`. Or a dictionary of such inputs, or a `Dataset` whose items
            are dictionaries.

    >>> bags = Bags([3, 2], [[2, 1], [0, 2]])
    >>> BagDataset(torch.arange(5.0), bags)[1]
    (tensor([3., 4.]), tensor([0, 2]))
    >>> BagDataset({"input_ids": torch.arange(10).reshape(5, 2)}, bags)[1]
    {'input_ids': tensor([[6, 7],
            [8, 9]]), 'counts': tensor([0, 2])}
    """

    def __init__(self, inputs: Inputs | Mapping[str, Inputs], bags: Bags) -> None:
        if not isinstance(inputs, Mapping):
            BagData(inputs, bags)  # checks them
        elif not inputs or _KNOWN in inputs or _BAGS in inputs:
            raise InputError(
                f"the inputs have the names {list(inputs)}; at least one is needed, and "
                f"{_KNOWN!r} and {_BAGS!r} are those of what is known of the bags."
            )
        else:
            for name, values in inputs.items():
                try:
                    BagData(values, bags)
                except InputError as error:
                    raise type(error)(f"input {name!r}: ", *error.args) from None
        self.inputs = inputs
        self.bags = bags

    def __len__(self) -> int:
        return len(self.bags)

    def __getitem__(self, bag: int) -> Any:
        bags = self.bags
        bag = index(bag)  # no slice, no list: what belongs together is for `collate_bags`
        if not -len(bags) <= bag < len(bags):
            raise IndexError(f"there is no bag {bag} among {len(bags)}")
        start, size = int(bags.offsets[:-1][bag]), int(bags.sizes[bag])
        instances = reading.take_named(self.inputs, torch.arange(start, start + size))
        plain = bags.potentials is None and bags.row_labels is None and bags.weights is None
        known = (
            torch.from_numpy(bags.counts[bag].copy()) if plain else bags.select([bag % len(bags)])
        )
        return {**instances, _KNOWN: known} if isinstance(instances, dict) else (instances, known)


def collate_bags(items: Sequence[Any]) -> Any:
    """Put bags together: items (instances (K, ...), counts (C,)) become (inputs (N, ...), `Bags`).

    Items that are dictionaries, of instances (K, ...) by name and counts (C,) as "counts", become a
    dictionary of inputs (N, ...) with the `Bags` as "bags".

    In place of counts an item may have a `Bags` of one bag, for what is known otherwise.

    The `collate_fn` of a `DataLoader` whose dataset has bags as its items: a `BagDataset`, or one's
    own. What it yields is what a loss takes: `cc_loss(model(inputs), bags)`.

    >>> bag, other = (torch.zeros(3, 4), [2, 1]), (torch.ones(2, 4), [0, 2])
    >>> inputs, bags = collate_bags([bag, other])
    >>> inputs.shape, bags
    (torch.Size([5, 4]), Bags(2 bags, 5 instances, 2 classes, sizes 2 to 3))
    >>> collate_bags([{"x": [[1.0], [2.0]], "counts": [1, 1]}, {"x": [[3.0]], "counts": [0, 1]}])
    {'x': tensor([[1.],
            [2.],
            [3.]]), 'bags': Bags(2 bags, 3 instances, 2 classes, sizes 1 to 2)}
    """
    if not items:
        raise InputError("there are no items to collate; at least one bag is needed.")
    if isinstance(items[0], Mapping):
        return _collate_named(items)
    for item in items:
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputTypeError(
                f"an item of the dataset is a {type(item).__name__}; a pair is expected: the "
                "instances of a bag (K, ...) and its label counts (C,). BagDataset(inputs, bags) "
                "has such items."
            )
        if isinstance(item[0], Mapping):
            raise InputTypeError(
                f"the instances of a bag are a {type(item[0]).__name__}; give one dictionary of "
                f"the instances and of the counts, {{..., {_KNOWN!r}: counts}}."
            )
    inputs, sizes = _joined([item[0] for item in items], "instances")
    return inputs, _bags_of([item[1] for item in items], sizes)


def _collate_named(items: Sequence[Any]) -> dict[str, Any]:
    names = list(items[0])
    for place, item in enumerate(items):
        if not isinstance(item, Mapping) or set(item) != set(names):
            has = list(item) if isinstance(item, Mapping) else f"a {type(item).__name__}"
            raise InputError(
                f"item {place} is {has} and item 0 a dictionary of {names}; give all of them "
                "the same names."
            )
    if _KNOWN not in names or len(names) == 1:
        raise InputError(
            f"an item of the dataset has the names {names}; instances are expected, and the label "
            f"counts (C,) of the bag as {_KNOWN!r}. (Hugging Face's Trainer drops them, unless "
            "it is given remove_unused_columns=False.)"
        )
    found: dict[str, Any] = {}
    sizes: list[int] = []
    for name in names:
        if name == _KNOWN:
            continue
        found[name], of_name = _joined([item[name] for item in items], repr(name))
        if sizes and of_name != sizes:
            raise InputError(
                f"bags have {of_name} instances of {name!r}, but {sizes} of {next(iter(found))!r};"
                " give all of every instance."
            )
        sizes = of_name
    return {**found, _BAGS: _bags_of([item[_KNOWN] for item in items], sizes)}


def _joined(values: Sequence[Any], what: str) -> tuple[torch.Tensor, list[int]]:
    """The instances of all bags (N, ...), and how many each has."""
    instances = [reading.as_tensor(of_bag) for of_bag in values]
    hint = "kind of instances" if what == "instances" else "shape; pad texts to one length"
    _require_alike([of_bag.shape[1:] for of_bag in instances], f"{what} of shape", hint)
    return torch.cat(instances), [len(of_bag) for of_bag in instances]


def _bags_of(values: Sequence[Any], sizes: list[int]) -> Bags:
    """Bags of these sizes from the counts (C,) of each, or from a `Bags` of each."""
    known = [value for value in values if isinstance(value, Bags)]
    if known:
        if len(known) < len(values):
            raise InputTypeError(
                "some items have counts and others a Bags; give all of them one kind."
            )
        return Bags.join(known)
    counts = [np.asarray(value) for value in values]
    _require_alike([found.shape for found in counts], "counts of shape", "classes")
    return Bags(sizes, np.stack(counts))


def _require_alike(shapes: Sequence[tuple[int, ...]], what: str, of: str) -> None:
    """Items that are put together have the same shapes."""
    for place, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise InputError(
                f"item {place} has {what} {tuple(shape)} and item 0 {tuple(shapes[0])}; all bags "
                f"need the same {of}."
            )
