"""Models of tables that PyTorch trains: what `bagwise.tables` asks for by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bagwise.bags import FloatArray
from bagwise.data import BagData
from bagwise.errors import DamagedError
from bagwise.estimator.classifier import LLPClassifier
from bagwise.estimator.defaults import searched
from bagwise.estimator.network_candidates import (
    RATES,
    Search,
    as_tensors,
    most_epochs,
    patience,
    variant,
)
from bagwise.estimator.parameters import new_method
from bagwise.estimator.saving import files_of, load
from bagwise.likelihood.splits import Split
from bagwise.storage.journal import Workspace
from bagwise.storage.model_folder import Write
from bagwise.tables.model.linear_model import LinearModel
from bagwise.tables.search.candidate import Trial
from bagwise.tables.search.step_by_step import StepByStep, Trained
from bagwise.tables.sort.encoded_bags import EncodedBags
from bagwise.training.divide_logits import divide_logits
from bagwise.training.evaluation import predict_logits
from bagwise.training.run_state import OtherRunError

VERSION = str(torch.__version__)


@dataclass(frozen=True, eq=False)
class NetworkModel:
    """A network that classifies encoded rows, as `bagwise.tables.model.LinearModel` does."""

    classifier: LLPClassifier

    @property
    def classes(self) -> tuple[str, ...]:
        """(C,) the class labels."""
        return tuple(map(str, self.classifier.classes_))

    @property
    def temperature(self) -> float:
        """By which the logits are divided."""
        return self.classifier.temperature_

    def log_probs(self, inputs: npt.NDArray[Any]) -> FloatArray:
        """(N, C) log-probabilities of encoded rows (N, d)."""
        # PyTorch warns of arrays that may not be written, for instance memory-mapped ones.
        rows = torch.from_numpy(np.require(inputs, np.float32, ["C", "W"]))
        found: FloatArray = (
            predict_logits(self.classifier.model_, rows).log_softmax(-1).double().numpy()
        )
        return found

    def divided(self, temperature: float) -> NetworkModel:
        """The same, with logits that are divided by a temperature from now on."""
        divide_logits(self.classifier.model_, temperature)
        self.classifier.temperature_ *= temperature
        return self

    def files(self) -> dict[str, Write]:
        """What writes its files, by name, see `model_folder.save_folder`."""
        return files_of(self.classifier)


def read_network(path: Path) -> NetworkModel:
    """The network of a table's model folder."""
    return NetworkModel(load(LLPClassifier, path))


def is_likelihood(steps: StepByStep) -> bool:
    """Whether a method maximizes the likelihood of the bags; contradictions are ValueErrors."""
    return new_method(steps.method, steps.engine, dict(steps.options)).is_likelihood


class Networks:
    """Trains models of a table step by step."""

    def __init__(
        self,
        steps: StepByStep,
        data: EncodedBags,
        classes: npt.NDArray[Any],
        splits: Sequence[Split],
        work: Workspace,
        progress: bool = False,
        on_ray: bool = False,
    ) -> None:
        self.steps, self.data, self.classes = steps, data, classes
        self.splits, self.work, self.progress = splits, work, progress
        self.base = LLPClassifier(
            method=steps.method,
            engine=steps.engine,
            random_state=steps.seed,
            **searched(data.bags.sizes),
            **{f"method__{name}": value for name, value in steps.options.items()},
        )
        self._search = Search(
            self.base, data, classes, splits, work, steps.epochs, progress, on_ray
        )

    def trials(self, model: str, rival: Trial | None) -> list[Trial]:
        """What is known of a model with each learning rate, see `Search.trials`."""
        rates = RATES[model] if self.steps.lr is None else (self.steps.lr,)
        return self._search.trials(model, rates, rival)

    def fit(self, chosen: Trial) -> Trained:
        """Train the model that was chosen: on all bags where each was held out once, otherwise on
        all but the held-out ones, until these are most probable.
        """
        assert chosen.lr is not None
        bags, held_out = as_tensors(self.data), None
        if len(self.splits) > 1:
            assert chosen.epochs is not None
            classifier = self._variant(chosen, chosen.epochs)
        else:
            epochs = self.steps.epochs
            most = most_epochs(len(self.data)) if epochs is None else epochs
            classifier = self._variant(chosen, most, patience(most) if epochs is None else None)
            bags, held_out = (bags.select(index) for index in self.splits[0])
        trained = self._trained(classifier, bags, held_out)
        model = linear_of(trained) if chosen.model == "linear" else NetworkModel(trained)
        assert trained.best_epoch_ is not None
        return Trained(model, trained.best_epoch_, trained.history_)

    def _variant(self, chosen: Trial, epochs: int, waits: int | None = None) -> LLPClassifier:
        assert chosen.lr is not None
        return variant(self.base, chosen.model, chosen.lr, epochs, waits, verbose=self.progress)

    def _trained(
        self, classifier: LLPClassifier, data: BagData, held_out: BagData | None
    ) -> LLPClassifier:
        """Go on from the last epoch that was kept; from the beginning if that is damaged."""
        try:
            return classifier.fit_bags(data, self.classes, held_out, self.work.checkpoint)
        except (DamagedError, OtherRunError):
            self.work.forget_checkpoint()
            return classifier.fit_bags(data, self.classes, held_out, self.work.checkpoint)


def linear_of(classifier: LLPClassifier) -> LinearModel:
    """The model of a classifier whose network is "linear", in the units of its inputs."""
    weights, intercept = classifier.linear_layer()
    classes, temperature = tuple(map(str, classifier.classes_)), classifier.temperature_
    return LinearModel(classes, weights.T.copy(), intercept, temperature)
