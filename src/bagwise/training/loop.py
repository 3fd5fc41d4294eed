"""The training loop: batches of whole bags, validation, the best epoch, checkpoints."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from bagwise.augmentations import Augment, find_augmentation
from bagwise.bags.arrays import IntArray
from bagwise.data import BagData, Inputs
from bagwise.data.inputs import feed, kept_on, on_device, take
from bagwise.errors import InputError
from bagwise.limits import LIMITS, Limits
from bagwise.methods import Batch, Method, make_method
from bagwise.methods.base import room_of
from bagwise.progress import TrainingProgress
from bagwise.training.averaging import averaged
from bagwise.training.bag_parts import Parts
from bagwise.training.batch_knowledge import Known
from bagwise.training.best import best_row
from bagwise.training.callbacks import Callback
from bagwise.training.compiling import compiled
from bagwise.training.distributed import workers_of
from bagwise.training.evaluation import measures, totals
from bagwise.training.memory import instances_that_fit
from bagwise.training.optimizers import Schedule, new_optimizer, state_layout
from bagwise.training.precision import check_precision, computing_in, is_hopeless, new_scaler, step
from bagwise.training.randomness import seeded
from bagwise.training.requirements import (
    check_arguments,
    check_groupings,
    check_logits,
    check_room,
    check_views,
    checked_loss,
    dtypes_named,
    own_metrics,
)
from bagwise.training.run_state import RunState, load_run, save_run
from bagwise.training.tally import Tally, refuse_broken
from bagwise.training_options import TrainingOptions

Row = dict[str, float]


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
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    limits: Limits = LIMITS,
) -> TrainingResult:
    """Train `model` on bags.

    One seed makes a run repeatable bit for bit on one machine's CPU. With `checkpoint`, a folder,
    all that a run needs to go on is written there after each epoch, in one step; the same call then
    goes on where a killed run was and ends exactly as if it had never stopped. That is a promise
    for inputs in tensors and arrays. Of a `Dataset` it holds if its items are always the same, or
    draw from PyTorch's generator or Python's `random` and are fetched by the same number of
    workers.

    Within an initialized process group of `torch.distributed` all workers call `train` with the
    same arguments, and share the work of each batch: the result, which all of them get, is that of
    one process. The first worker alone writes checkpoints, calls back and shows progress. See
    docs/workers.md.

    Args:
        model: maps (n, ...) inputs to (n, C) logits; it is trained in place.
        data: the training bags; labels, where there are any, serve methods that ask for them, and
            the history.
        method: a name or a `Method`.
        validation: bags to choose the best epoch by.
        test: measured each epoch for the history, never used to choose.
        checkpoint: a folder for the run's state.
        device: where the model computes. Double precision stays on the CPU.
        callbacks: called before, after and between epochs, see `bagwise.training.Callback`.
        limits: how much memory a step may take.

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
    check_arguments(model, data, options, validation, test, device, callbacks)
    options = options or TrainingOptions()
    method = make_method(method)
    check_groupings(method, data)
    data = data.joined()
    device = torch.device(device)
    if validation is None:
        options = replace(options, select="last")
    elif options.select == "accuracy" and validation.labels is None:
        raise InputError(
            'select="accuracy" needs labels for the validation instances, and there are none; '
            'use select="bag_loss", which needs only the counts.'
        )
    if method.needs_teacher and options.average is None:
        raise InputError(
            f"method {method.name!r} learns from the averaged model, and there is none; "
            "set average, for instance average=0.99."
        )
    group = workers_of(device, data.inputs)
    group.require_same(_outline(method, options, data, validation, test))
    check_precision(model, options.precision, device)
    model.to(device)
    group.make_alike(model)
    inputs = kept_on(data.inputs, device)
    bags = max(_bags_in_a_batch(model, data.bags.sizes, options), method.least_bags)
    most = instances_that_fit(model, inputs, device, limits.step_bytes) if bags > 1 else None
    method.n_epochs = options.epochs
    method.begin(data, device)
    room = room_of(options.batch_instances, bags, most)
    check_room(method, data.bags.sizes, room, options.batch_instances)
    known = Known(data, Parts(data.bags, room, method.kept, inputs), method.kept, device)
    with seeded(options.seed, device):
        parts = {
            name: part for name, part in (("val", validation), ("test", test)) if part is not None
        }
        forward = model
        if options.compile:
            group.check_compiled(model)
            first = take(inputs, torch.arange(min(options.batch_instances, len(data))))
            forward = compiled(model, on_device(first, device), options.precision, device)
        shards = {name: group.shard(part) for name, part in parts.items()}
        state = RunState(
            model=model,
            forward=forward,
            average=None if options.average is None else averaged(model, options.average),
            optimizer=new_optimizer(options, model.parameters()),
            optimizer_layout=state_layout(options),
            scaler=new_scaler(options.precision, device),
            precision=options.precision,
            method=method,
            generator=torch.Generator().manual_seed(options.seed),
            device=device,
            n_classes=data.bags.n_classes,
            measures=tuple(
                f"{name}_{key}"
                for name, part in parts.items()
                for key in ("bag_loss", *(() if part.labels is None else ("accuracy",)))
            ),
            group=group,
        )
        identity: dict[str, Any] = {}
        if checkpoint is not None:
            identity = _identity(model, method, options, data, validation, test)
            load_run(Path(checkpoint), state, identity)
            if len(state.history) > options.epochs:
                raise InputError(
                    f"the run in {checkpoint} has {len(state.history)} epochs already, and only "
                    f"{options.epochs} are asked for; use another folder."
                )
        group.require_same(f"{len(state.history)} epochs")
        schedule = Schedule(options, state.optimizer, state.history)
        kept = model if state.average is None else state.average.module
        group.first_does(lambda: _call(callbacks, "on_train_begin", state.history, kept))
        show = progress and group.is_first
        with TrainingProgress(method.name, options.epochs, state.history, show) as bar:
            while not _finished(state, options):
                started = time.perf_counter()
                row = _epoch(state, data, inputs, options, schedule, bags, most, known, bar)
                group.make_alike(model, state.average)
                refuse_broken(kept, f"the last steps of epoch {row['epoch']}")
                for name, part in parts.items():
                    found = group.sum(totals(kept, shards[name], device, options.workers))
                    row |= {f"{name}_{key}": value for key, value in measures(found, part).items()}
                row["seconds"] = group.from_first(time.perf_counter() - started)
                state.history.append(row)
                schedule.epoch_done(row)
                if best_row(state.history, options.select) is row:
                    state.best_epoch = int(row["epoch"])
                    state.best = {k: v.detach().clone() for k, v in kept.state_dict().items()}
                if checkpoint is not None:
                    group.first_does(partial(save_run, Path(checkpoint), state, identity))
                group.first_does(lambda: _call(callbacks, "on_epoch_end", state.history[-1], kept))
                bar.epoch_done(row)
    model.load_state_dict(state.best)
    model.eval()
    group.first_does(lambda: _call(callbacks, "on_train_end", state.history, model))
    return TrainingResult(model, state.history, state.best_epoch)


def _outline(method: Method, options: TrainingOptions, *data: BagData | None) -> str:
    """What all workers must agree on, as far as it costs nothing to say."""
    sizes = [None if part is None else (len(part), len(part.bags)) for part in data]
    name = method.name or type(method).__name__
    return (
        f"the method {name}, {options.epochs} epochs, the options {options.identity()} and "
        f"(instances, bags) {sizes}"
    )


def _call(callbacks: Sequence[Callback], hook: str, *arguments: Any) -> None:
    for callback in callbacks:
        getattr(callback, hook)(*arguments)


def _bags_in_a_batch(model: nn.Module, sizes: IntArray, options: TrainingOptions) -> int:
    """How many bags a batch holds at least."""
    if not any(isinstance(module, _BatchNorm) for module in model.modules()):
        return 1
    # Where any two have room, the bag that may be left over joins the batch before it.
    joins = 2 * sizes.max() <= options.batch_instances and not options.drop_last
    least = 2 if joins else 1
    # One batch an epoch would be too few steps: half of the bags are enough for one.
    return min(max(options.batch_bags, least), max(len(sizes) // 2, 2))


def _epoch(
    state: RunState,
    data: BagData,
    inputs: Inputs,
    options: TrainingOptions,
    schedule: Schedule,
    bags: int,
    most: int | None,
    known: Known,
    bar: TrainingProgress,
) -> Row:
    """One pass over the training bags."""
    epoch = len(state.history) + 1
    model, method = state.model, state.method
    state.group.begin_epoch(options.seed, epoch)
    method.begin_epoch(epoch, state.generator)
    known.begin_epoch()
    tally = Tally(epoch, state.device, state.precision)
    augment = find_augmentation(options.augment)
    drawn = method.batches(data, options.batch_instances, state.generator, bags, most)
    batches, ahead = itertools.tee(_full(drawn) if options.drop_last else drawn)
    # Views are drawn for a whole batch, so that they do not depend on the number of workers.
    viewed = augment is not None or method.has_second_view
    wanted = (batch.rows if viewed else state.group.share(batch.rows) for batch in ahead)
    fed = feed(inputs, wanted, options.workers, state.generator)
    while together := tuple(itertools.islice(batches, options.accumulate_batches)):
        schedule.before_step((epoch - 1 + tally.seen / data.bags.total) / options.epochs)
        state.optimizer.zero_grad()
        sizes = [known.n_instances(batch.rows) for batch in together]
        for batch, size in zip(together, sizes, strict=True):
            batch = known.of_rows(batch)
            views = [on_device(next(fed), state.device)]
            if viewed:
                views = [state.group.share(view) for view in _views(state, views[0], augment)]
            model.train(len(batch.rows) > 1)  # batch normalization has no statistics of one row
            logits, batch = _forward(state, views, batch)
            loss = _backward(state, logits, batch, known, size / sum(sizes), tally)
            tally.add(loss, logits.detach(), batch)
            bar.step(tally.seen / data.bags.total)
        _step(state, options.clip, tally)
    row: Row = {"epoch": epoch, **tally.means(), "lr": schedule.rate}
    if data.labels is not None:
        row["train_accuracy"] = tally.accuracy()
    row |= own_metrics(method, row)
    row["seconds"] = 0.0  # known when the epoch has been evaluated
    return row


def _full(batches: Iterator[Batch]) -> Iterator[Batch]:
    """All batches but the last one, if that has fewer instances than the one before it."""
    before, last = None, next(batches)
    for batch in batches:
        yield last
        before, last = last, batch
    if before is None or last.n_instances >= before.n_instances:
        yield last


def _views(state: RunState, inputs: torch.Tensor, augment: Augment | None) -> list[torch.Tensor]:
    """The view of a batch that bags are learned from, and another, if the method asks."""
    second = state.method.second_view(inputs.clone(), state.generator)
    first = inputs if augment is None else augment(inputs, state.generator)
    views = [first] if second is None else [first, second]
    check_views(views, inputs)
    return views


def _forward(
    state: RunState, views: list[torch.Tensor], batch: Batch
) -> tuple[torch.Tensor, Batch]:
    """The logits of a batch, and the batch with those of further views, if the method asks."""
    # All at once: batch normalization then has one idea of what inputs look like.
    model = state.forward if state.model.training else state.model
    logits = _logits(state, model, views, batch.rows)
    if len(views) > 1:
        logits, second = logits.tensor_split(2)
        batch = replace(batch, second_logits=second)
    if state.method.needs_teacher:
        assert state.average is not None
        with torch.no_grad():
            teacher = state.average.module.eval()
            batch = replace(batch, teacher_logits=_logits(state, teacher, views[:1], batch.rows))
    return logits, batch


def _logits(
    state: RunState, model: nn.Module, views: list[torch.Tensor], rows: torch.Tensor
) -> torch.Tensor:
    """(views * n, C) of a batch's rows (n,), of which the views are this worker's share."""
    inputs = views[0] if len(views) == 1 else torch.cat(views)
    with dtypes_named(model, inputs), computing_in(state.precision, state.device):
        logits = state.group.logits(model, inputs, rows)
    check_logits(logits, len(inputs), state.n_classes)
    if state.precision != "full":
        logits = logits.float()
    return state.group.gather(logits, rows, len(views))


def _backward(
    state: RunState,
    logits: torch.Tensor,
    batch: Batch,
    known: Known,
    share: float,
    tally: Tally,
) -> torch.Tensor:
    """The loss of a batch; its gradient is added, times the batch's share of the step."""
    loss = tally.watched(
        logits, lambda: checked_loss(state.method, logits, known.of_bags(batch, logits))
    )
    share *= state.group.share_of_loss(len(batch.rows))
    state.scaler.scale(loss if share == 1 else share * loss).backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def _step(state: RunState, clip: float | None, tally: Tally) -> None:
    """One step of the optimizer, which the averaged model follows."""
    state.group.add_gradients(state.model)
    state.scaler.unscale_(state.optimizer)
    if clip is not None:
        nn.utils.clip_grad_norm_(state.model.parameters(), clip)
    if not step(state.scaler, state.optimizer):
        if is_hopeless(state.scaler):
            raise tally.diverged("the gradient")
        return
    if state.average is not None:
        state.average.update_parameters(state.model)
    state.steps += 1


def _finished(state: RunState, options: TrainingOptions) -> bool:
    done = len(state.history)
    waited = options.patience is not None and done - state.best_epoch >= options.patience
    return done >= options.epochs or (done > 0 and options.select != "last" and waited)


def _identity(
    model: nn.Module, method: Method, options: TrainingOptions, *data: BagData | None
) -> dict[str, Any]:
    """What must be the same for a run to go on from a checkpoint."""
    return {
        "method": method.name or type(method).__name__,
        "method options": {name: repr(value) for name, value in method.get_params().items()},
        "options": options.identity(),
        "data": [None if part is None else part.fingerprint() for part in data],
        "model": {name: list(value.shape) for name, value in model.state_dict().items()},
    }
