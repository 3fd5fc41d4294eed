"""A model fitted to a table, and its folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bagwise.errors import DamagedError, InputError, Option
from bagwise.storage import model_folder as archive
from bagwise.storage.array_files import Arrays
from bagwise.storage.config import LINEAR
from bagwise.storage.files import write_atomically
from bagwise.storage.manifest import is_as_written
from bagwise.storage.uris import refuse_uri
from bagwise.tables.encode.columns import FORMAT as COLUMNS_FORMAT
from bagwise.tables.encode.columns import OLDEST, Columns, Inputs
from bagwise.tables.model import fit_file
from bagwise.tables.model.interval_file import read_intervals
from bagwise.tables.model.linear_model import LinearModel, read_linear, read_linear_network
from bagwise.tables.model.network_room import network_room

if TYPE_CHECKING:
    from bagwise.estimator.table_networks import NetworkModel
    from bagwise.likelihood import Covariance, EffectsOfFit
    from bagwise.tables.labels.bag_context import BagContext
    from bagwise.tables.model.fit_facts import FitFacts
    from bagwise.tables.model.known_bags import KnownBags
    from bagwise.tables.read.row_source import RowSource


@dataclass(frozen=True)
class FittedTable:
    """A fitted model, what the columns of its table mean, and how it was fitted.

    Attributes:
        model: of encoded rows.
        columns: how rows are encoded.
        fit: what `fit` found; of a model from a folder the content of fit.json, as it stands there.
        of_intervals: how sure the coefficients of a linear model are; empty where it is not known.
        known_bags: the own effects of the bags it was fitted to; None for a model without.
        held_out: CSV with the true and predicted counts of every bag that was held out; empty of a
            model that does not have it.
        fit_is_intact: whether fit.json is as it was written.
        fit_path: where fit.json is, for messages.
        context: columns of its bags that it learned from; None without.
    """

    model: LinearModel | NetworkModel
    columns: Columns
    fit: FitFacts | dict[str, object]
    of_intervals: Arrays = field(default_factory=dict)
    known_bags: KnownBags | None = None
    held_out: bytes = b""
    fit_is_intact: bool = True
    fit_path: str = archive.FIT
    context: BagContext | None = None

    @property
    def facts(self) -> FitFacts:
        """What `fit` found; a ValueError where fit.json does not say it.

        It is looked at only here: a model predicts without it.
        """
        if not isinstance(self.fit, dict):
            return self.fit
        try:
            facts = fit_file.from_json(self.fit)
        except InputError as error:
            raise DamagedError(
                f"{self.fit_path} is damaged: {error} Fit the model again."
            ) from error
        if not self.fit_is_intact:
            raise InputError(
                f"{self.fit_path} is not as it was when the model was saved; restore it from a "
                "copy, or fit again."
            )
        return facts

    @property
    def intervals(self) -> Covariance | None:
        """The covariance of a linear model's coefficients, where it is known."""
        if not self.of_intervals:
            return None
        from bagwise.tables.model.stored_covariance import covariance_of

        tau = self.known_bags.effects.tau if self.known_bags else 0.0
        return covariance_of(self.of_intervals, tau)

    @property
    def interval_effects(self) -> EffectsOfFit | None:
        """The effects of the known bags by the fit of `intervals`, where they are known."""
        if self.known_bags is None:
            return None
        from bagwise.tables.model.stored_covariance import effects_in

        n_bags, tau = len(self.known_bags.names), self.known_bags.effects.tau
        return effects_in(self.of_intervals, tau, n_bags)

    @property
    def classes(self) -> list[str]:
        """The class labels."""
        return list(self.model.classes)

    def named(self, classes: npt.NDArray[np.int64]) -> pa.Array:
        """(N,) class labels of the numbers of classes."""
        return pa.array(self.classes, pa.string()).take(pa.array(classes))

    def log_probs(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        """(N, C) log-probabilities of encoded rows; with bag effects, for an effect of zero."""
        return self.model.log_probs(inputs)

    def predict(self, inputs: Inputs, bags: pa.Array | None = None) -> npt.NDArray[np.float64]:
        """(N, C) log-probabilities of encoded rows.

        Args:
            inputs: (N, width) encoded rows.
            bags: (N,) the name of each row's bag, which a model with bag effects makes use of;
                without names, and for a bag that it does not know, it takes the mean over bags.
        """
        log_probs = self.log_probs(inputs)
        if self.known_bags is None:
            return log_probs
        names = pa.nulls(len(inputs), pa.string()) if bags is None else bags
        p = self.known_bags.probabilities(log_probs, self.known_bags.places(names))
        return np.log(p)

    def with_context(self, source: RowSource, bag: Sequence[str] = ()) -> RowSource:
        """The rows with the columns of their bags, where the model has learned from such.

        Args:
            source: the rows.
            bag: the bag's columns, if not those of the fit.
        """
        if self.context is None:
            return source
        from bagwise.tables.labels.bag_context import RowsWithContext

        return RowsWithContext(source, self.context, bag)

    def bag_columns(self, there: Sequence[str], given: Sequence[str] = ()) -> list[str]:
        """The columns that name the bags of rows, for a model that makes use of them; else none.

        Args:
            there: columns of the table. The bags' own names are used if they are all among them.
            given: other names for them.
        """
        if self.known_bags is None:
            if given and self.context is None:
                raise InputError(
                    "this model has no bag effects, so the bag of a row says nothing. Give the "
                    "bags' counts or shares with ",
                    Option("labels"),
                    ", or fit with ",
                    Option("bag_effects", True),
                    ".",
                )
            return []
        own = list(self.known_bags.columns)
        if given and len(given) != len(own):
            raise InputError(
                f"the bags of this model are named by {', '.join(own)}; ",
                Option("bag"),
                f" is {', '.join(given)}. Give as many columns.",
            )
        return list(given) or (own if set(own) <= set(there) else [])

    def without_counts(self) -> FittedTable:
        """The same model without the counts of single bags, to be shared; bag effects remain."""
        return replace(self, fit=self.facts.without_counts(), held_out=b"")

    def save(self, path: Path) -> None:
        """Write the model folder, in one step; where a symbolic link leads, if `path` is one."""
        refuse_uri(path)
        fit = self.fit if isinstance(self.fit, dict) else fit_file.to_json(self.fit)
        files = self.model.files()
        files[archive.COLUMNS] = archive.as_json(self.columns.to_json())
        files[archive.FIT] = archive.as_json(fit)
        if self.of_intervals:
            files[archive.INTERVALS] = archive.as_arrays(self.of_intervals)
        if self.known_bags is not None:
            files[archive.EFFECTS] = self.known_bags.save
        if self.context is not None:
            files[archive.CONTEXT] = archive.as_json(self.context.to_json())
        if self.held_out:
            files[archive.HELD_OUT] = partial(write_atomically, content=self.held_out)
        archive.save_folder(Path(os.path.realpath(path)), files)

    @classmethod
    def load(cls, path: Path) -> FittedTable:
        """Read a model folder; what is missing, damaged or too new is a ValueError."""
        archive.recover(path)
        if not path.is_dir():
            raise InputError(f"there is no folder {path}; give the folder of a fitted model.")
        of_columns = _read(path / archive.COLUMNS, COLUMNS_FORMAT, OLDEST)
        fit = _read(path / archive.FIT, fit_file.FORMAT, fit_file.OLDEST)
        archive.require_files(path)
        kind, config = archive.read_config(path)
        try:
            columns = Columns.from_json(of_columns)
        except InputError as error:
            raise DamagedError(f"{path / archive.COLUMNS} is damaged: {error}.") from error
        width = len(columns.encoded_names)
        shape = (config["n_features"],) if kind == LINEAR else tuple(config["shape"])
        if shape != (width,):
            raise InputError(
                f"{path / archive.COLUMNS} makes {width} features, but the model in "
                f"{archive.CONFIG} has {shape}; the folder is damaged."
            )
        model = _read_model(path, kind, config)
        found = read_intervals(path / archive.INTERVALS, width, len(model.classes))
        known = _known_bags(path / archive.EFFECTS, len(model.classes))
        table = path / archive.HELD_OUT  # for people; nothing is read from it
        held_out = table.read_bytes() if table.is_file() else b""
        # What the fit says about itself is not needed to predict, and is checked where it is used.
        archive.check_files(path, apart=[archive.FIT])
        intact = is_as_written(path, archive.FIT)
        context = _context(path / archive.CONTEXT)
        fit_path = str(path / archive.FIT)
        return cls(model, columns, fit, found, known, held_out, intact, fit_path, context)


def _read_model(path: Path, kind: str, config: dict[str, Any]) -> LinearModel | NetworkModel:
    if kind == LINEAR:
        return read_linear(path, config)
    if config["params"]["model"] == "linear":  # as earlier formats keep it
        return read_linear_network(path, config)
    room = network_room(f"the model in {path} is a perceptron, which")
    found: NetworkModel = room.read_network(path)
    return found


def _known_bags(path: Path, n_classes: int) -> KnownBags | None:
    """The effects of bags; what they need is imported only for a model that has such."""
    if not path.exists():
        return None
    from bagwise.tables.model.known_bags import KnownBags

    return KnownBags.load(path, n_classes)


def _context(path: Path) -> BagContext | None:
    """The columns of bags; what they need is imported only for a model that has such."""
    if not path.exists():
        return None
    from bagwise.tables.labels.bag_context import FORMAT, BagContext

    try:
        return BagContext.from_json(_read(path, FORMAT))
    except InputError as error:
        raise DamagedError(f"{path} is damaged: {error}; fit the model again.") from error


def _read(path: Path, version: int, oldest: int | None = None) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(
            f"{path.parent} has no {path.name}; it is incomplete, or not from bagwise fit (that of "
            "bagwise train has no columns of a table)."
        )
    return archive.read_json(path, version, oldest)
