"""The own intercepts of the bags that a model was fitted to, kept in the model's folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bagwise.bags import FloatArray, IntArray
from bagwise.checks import list_of, number, record, text, whole
from bagwise.errors import DamagedError, InputError
from bagwise.likelihood import BagEffects
from bagwise.likelihood.mixing import mean_softmax
from bagwise.storage.array_files import (
    Arrays,
    compare,
    load_arrays,
    require_finite,
    save_arrays,
    shape_of,
    verify,
)
from bagwise.tables.labels.bag_names import plain_name

FORMAT = 1
HIGHEST_TAU = 100.0


@dataclass(frozen=True)
class KnownBags:
    """Bags by name, and what is known of the effect of each.

    Attributes:
        columns: that a bag's name is made of.
        names: (B,) of the bags.
        effects: their effects.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    effects: BagEffects

    @cached_property
    def _places(self) -> dict[str, int]:
        return {plain_name(name): place for place, name in enumerate(self.names)} | {
            name: place for place, name in enumerate(self.names)
        }

    def places(self, bags: pa.Array) -> IntArray:
        """(N,) where in `names` the bag of each row is, B for new ones and where there is none."""
        new = len(self.names)
        encoded = bags.dictionary_encode()
        own = [
            self._places.get(name, self._places.get(plain_name(name), new))
            for name in encoded.dictionary.to_pylist()
        ]
        local = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        found: IntArray = np.array([*own, new], dtype=np.int64)[local]
        return found

    def count(self, bags: pa.Array) -> int:
        """How many rows are of a bag that is known."""
        return int((self.places(bags) < len(self.names)).sum())

    def probabilities(self, z: FloatArray, places: IntArray) -> FloatArray:
        """(N, C) class probabilities of rows with logits z (N, C) for an effect of zero.

        That is the mean of softmax(z + u) over what is known of the effect u of the row's bag, or
        over the effects of all bags, if it is new.
        """
        found = self.effects
        means = np.vstack([found.means, np.zeros(z.shape[1])])
        return mean_softmax(z, places, means, np.append(found.spreads, found.tau))

    def save(self, path: Path) -> None:
        """Write all of it to one file."""
        arrays = {
            "tau": np.array(self.effects.tau, dtype=np.float64),
            "means": self.effects.means,
            "spreads": self.effects.spreads,
        }
        facts = {"format": FORMAT, "columns": list(self.columns), "bags": list(self.names)}
        save_arrays(path, arrays, facts)

    @classmethod
    def load(cls, path: Path, n_classes: int) -> KnownBags:
        """What a model's folder says; a ValueError if it is damaged."""
        arrays, facts = load_arrays(path)
        try:
            _check(arrays, facts, n_classes)
            verify(path, arrays)
        except InputError as error:
            raise DamagedError(f"{path} is damaged: {error}; fit the model again.") from error
        effects = BagEffects(float(arrays["tau"]), arrays["means"], arrays["spreads"])
        return cls(tuple(facts["columns"]), tuple(facts["bags"]), effects)


def _check(arrays: Arrays, facts: dict[str, Any], n_classes: int) -> None:
    needed = {
        "format": whole(FORMAT, FORMAT),
        "columns": list_of(text, 1),
        "bags": list_of(text, 1),
    }
    record(needed)(facts, "")
    if len(set(facts["bags"])) < len(facts["bags"]):
        raise InputError("a bag is there twice")
    B = len(facts["bags"])
    wanted = {
        "tau": shape_of("float64"),
        "means": shape_of("float64", B, n_classes),
        "spreads": shape_of("float64", B),
    }
    compare(arrays, wanted)
    require_finite(arrays)
    number(0, HIGHEST_TAU)(float(arrays["tau"]), "tau")
    if not ((arrays["spreads"] >= 0) & (arrays["spreads"] <= HIGHEST_TAU)).all():
        raise InputError(f"spreads are not all from 0 to {HIGHEST_TAU:g}")
