"""The training loop: batches of whole bags, validation, the best epoch, checkpoints."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from bagwise.data import BagData
from bagwise.methods import Batch, Method, make_method
from bagwise.training.evaluation import evaluate
from bagwise.training.memory import instances_that_fit
from bagwise.training.options import TrainingOptions
from bagwise.training.progress import TrainingProgress
from bagwise.training.run_state import RunState, load_run, save_run

Row = dict[str, float]


class DivergedError(RuntimeError):
    """The loss became NaN or infinite."""


@dataclass
class TrainingResult:
    """What training leaves.

    Attributes:
        model: with the weights of the best epoch, in evaluation mode.
        history: one row an epoch: `epoch`, `train_loss`, `lr`, `seconds` (evaluation included), and
            where they are known `train_accuracy`, `val_bag_loss`, `val_accuracy`, `test_bag_loss`,
            `test_accuracy`, and what the method measures.
        best_epoch: the epoch whose weights the model has.
    """

    model: nn.Module
    history: list[Row] = field(repr=False)
    best_epoch: int


def train(
    model: nn.Module,
    data: BagData,
    method: str | Method = "cc",
    options: TrainingOptions | None = None,
    *,
    validation: BagData | None = None,
    test: BagData | None = None,
    checkpoint: str | Path | None = None,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> TrainingResult:
    """Train `model` on bags.

    One seed makes a run repeatable bit for bit on one machine's CPU. With `checkpoint`, a folder,
    all that a run needs to go on is written there after each epoch, in one step; the same call then
    goes on where a killed run was and ends exactly as if it had never stopped.

    Args:
        model: maps (n, ...) inputs to (n, C) logits; it is trained in place.
        data: the training bags; labels, if there are any, only serve `supervised` and the history.
        method: a name or a `Method`.
        options: how to train.
        validation: bags to choose the best epoch by.
        test: measured each epoch for the history, never used to choose.
        checkpoint: a folder for the run's state.
        device: where the model computes.
        progress: show a progress bar, on a terminal.

    >>> from bagwise import Bags
    >>> _ = torch.manual_seed(0)
    >>> labels = torch.randint(2, (400,))
    >>> inputs = torch.randn(400, 3) + 2 * labels[:, None]
    >>> data = BagData(inputs, Bags.from_labels(labels, [4] * 100))
    >>> options = TrainingOptions(epochs=30, lr=0.05)
    >>> result = train(nn.Linear(3, 2), data, "cc", options, progress=False)
    >>> (result.model(inputs).argmax(1) == labels).float().mean() > 0.9
    tensor(True)
    """
    options = options or TrainingOptions()
    method = make_method(method)
    device = torch.device(device)
    if validation is None:
        options = replace(options, select="last")
    elif options.select == "accuracy" and validation.labels is None:
        raise ValueError(
            'select="accuracy" needs labels for the validation instances, and there are none; '
            'use select="bag_loss", which needs only the counts.'
        )
    model.to(device)
    inputs = data.inputs.to(device)
    bags = _bags_in_a_batch(model, len(data.bags), options)
    most = instances_that_fit(model, inputs) if bags > 1 else None
    method.begin(data, device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        state = RunState(
            model=model,
            average=copy.deepcopy(model).requires_grad_(False) if options.average else None,
            optimizer=torch.optim.Adam(
                model.parameters(), lr=options.lr, weight_decay=options.weight_decay
            ),
            method=method,
            generator=torch.Generator().manual_seed(options.seed),
            n_classes=data.bags.n_classes,
            measures=tuple(
                f"{name}_{key}"
                for name, part in (("val", validation), ("test", test))
                if part is not None
                for key in ("bag_loss", *(() if part.labels is None else ("accuracy",)))
            ),
        )
        identity: dict[str, Any] = {}
        if checkpoint is not None:
            identity = _identity(model, method, options, data, validation, test)
            load_run(Path(checkpoint), state, identity)
            if len(state.history) > options.epochs:
                raise ValueError(
                    f"the run in {checkpoint} has {len(state.history)} epochs already, and only "
                    f"{options.epochs} are asked for; use another folder."
                )
        with TrainingProgress(method.name, options.epochs, state.history, progress) as bar:
            while not _finished(state, options):
                started = time.perf_counter()
                row = _epoch(state, data, inputs, options, bags, most, bar)
                kept = state.average or model
                _refuse_broken(kept, f"the last steps of epoch {row['epoch']}")
                for name, part in (("val", validation), ("test", test)):
                    if part is not None:
                        measured = evaluate(kept, part, device)
                        row |= {f"{name}_{key}": value for key, value in measured.items()}
                row["seconds"] = time.perf_counter() - started
                state.history.append(row)
                if _is_best(state.history, options):
                    state.best_epoch = int(row["epoch"])
                    state.best = {k: v.detach().clone() for k, v in kept.state_dict().items()}
                if checkpoint is not None:
                    save_run(Path(checkpoint), state, identity)
                bar.epoch_done(row)
    model.load_state_dict(state.best)
    model.eval()
    return TrainingResult(model, state.history, state.best_epoch)


def _bags_in_a_batch(model: nn.Module, n_bags: int, options: TrainingOptions) -> int:
    """How many bags a batch holds at least."""
    if not any(isinstance(module, _BatchNorm) for module in model.modules()):
        return 1
    # One batch an epoch would be too few steps: half of the bags are enough for one.
    return min(options.batch_bags, max(n_bags // 2, 2))


def _epoch(
    state: RunState,
    data: BagData,
    inputs: torch.Tensor,
    options: TrainingOptions,
    bags: int,
    most: int | None,
    bar: TrainingProgress,
) -> Row:
    """One pass over the training bags."""
    epoch = len(state.history) + 1
    model, method = state.model, state.method
    method.begin_epoch(epoch, state.generator)
    loss_sum = 0.0
    correct = seen = 0
    batches = method.batches(data, options.batch_instances, state.generator, bags, most)
    for number, batch in enumerate(batches, start=1):
        rate = options.lr * _schedule(options, (epoch - 1 + seen / len(data)) / options.epochs)
        for group in state.optimizer.param_groups:
            group["lr"] = rate
        model.train(len(batch.rows) > 1)  # batch normalisation has no statistics of one row
        logits = model(inputs[batch.rows.to(inputs.device)])
        value = _step(state, logits, batch, options.clip, f"epoch {epoch}, batch {number}")
        if state.average is not None and options.average is not None:
            _move_average(state.average, model, options.average, state.steps)
        state.steps += 1
        loss_sum += value * len(batch.rows)
        seen += len(batch.rows)
        if data.labels is not None:
            found = logits.detach().argmax(-1).cpu()
            correct += int((found == data.labels[batch.rows]).sum())
        bar.step(seen / len(data))
    row: Row = {"epoch": epoch, "train_loss": loss_sum / seen, "lr": float(rate)}
    if data.labels is not None:
        row["train_accuracy"] = correct / seen
    row |= method.epoch_metrics()
    row["seconds"] = 0.0  # known when the epoch has been evaluated
    return row


def _step(
    state: RunState, logits: torch.Tensor, batch: Batch, clip: float | None, place: str
) -> float:
    """One step of the optimizer; returns the loss before it."""
    expected = (len(batch.rows), state.n_classes)
    if logits.shape != expected:
        raise ValueError(
            f"the model returns {tuple(logits.shape)} for {expected[0]} instances of "
            f"{expected[1]} classes; {expected} is expected."
        )
    if not logits.isfinite().all():
        raise _diverged("the model's output", place)
    loss = state.method.loss(logits, batch)
    value = loss.item()
    if not math.isfinite(value):
        raise _diverged("the loss", place)
    state.optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    if clip is not None:
        nn.utils.clip_grad_norm_(state.model.parameters(), clip)
    state.optimizer.step()
    return value


def _refuse_broken(model: nn.Module, place: str) -> None:
    for tensor in model.state_dict().values():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise _diverged("a weight", place)


def _diverged(what: str, place: str) -> DivergedError:
    return DivergedError(
        f"{what} became NaN or infinite in {place}. The usual causes are a learning rate that is "
        "too high (try a tenth of it) and inputs that are not standardised. The last checkpoint, "
        "if one was asked for, is that of the epoch before."
    )


def _schedule(options: TrainingOptions, done: float) -> float:
    """Factor of the learning rate after the share `done` of all epochs."""
    if options.schedule == "constant":
        return 1.0
    rise = 0.3
    if done < rise:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * done / rise)) / 2
    return max((1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2, 1e-4)


@torch.no_grad()
def _move_average(average: nn.Module, model: nn.Module, decay: float, steps: int) -> None:
    """Move the averaged weights towards the current ones; fast at first, when they are far off."""
    decay = min(decay, (1 + steps) / (10 + steps))
    own, current = average.state_dict(), model.state_dict()
    for name, tensor in own.items():
        if tensor.is_floating_point():
            tensor.lerp_(current[name], 1 - decay)
        else:
            tensor.copy_(current[name])


def _is_best(history: list[Row], options: TrainingOptions) -> bool:
    """Whether the last row is better than all before it (ties: the earlier one stays)."""
    if options.select == "last":
        return True
    sign = 1 if options.select == "accuracy" else -1
    scores = [sign * row[f"val_{options.select}"] for row in history]
    return len(scores) == 1 or scores[-1] > max(scores[:-1])


def _finished(state: RunState, options: TrainingOptions) -> bool:
    done = len(state.history)
    waited = options.patience is not None and done - state.best_epoch >= options.patience
    return done >= options.epochs or (done > 0 and options.select != "last" and waited)


def _identity(
    model: nn.Module, method: Method, options: TrainingOptions, *data: BagData | None
) -> dict[str, Any]:
    """What must be the same for a run to go on from a checkpoint."""
    settings = asdict(options)
    if options.schedule == "constant":
        del settings["epochs"]  # a run may be made longer
    if options.batch_bags == 1:
        del settings["batch_bags"]  # checkpoints from before there was a choice stay good
    return {
        "method": method.name or type(method).__name__,
        "method options": {name: repr(value) for name, value in method.get_params().items()},
        "options": settings,
        "data": [None if part is None else part.fingerprint() for part in data],
        "model": {name: list(value.shape) for name, value in model.state_dict().items()},
    }
