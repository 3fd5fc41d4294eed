"""Inputs that are not one tensor in memory, bags for one's own loop, labels known in part."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from bagwise import (
    BagBatchSampler,
    BagData,
    BagDataset,
    Bags,
    LLPClassifier,
    TrainingOptions,
    cc_loss,
    collate_bags,
    train,
)
from bagwise.data.inputs import sample, take
from bagwise.methods import Batch, Method
from bagwise.training import TrainingResult
from bagwise.training.evaluation import measures, predict_logits, totals
from bagwise.training.memory import instances_that_fit

RANDOM = torch.Generator().manual_seed(0)
LABELS = torch.randint(3, (120,), generator=RANDOM)
INPUTS = torch.randn(120, 4, generator=RANDOM) + 2 * nn.functional.one_hot(LABELS, 4)
BAGS = Bags.from_labels(LABELS, [6] * 10 + [3] * 20)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Each test draws the same ones, whichever ran before it."""
    RANDOM.manual_seed(1)


class Items(Dataset[Any]):
    """One instance an item, as a tensor, an array or with something beside it."""

    def __init__(self, change: Callable[[torch.Tensor], Any] = lambda item: item) -> None:
        self.change = change

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> Any:
        return self.change(INPUTS[index])


class Stored:
    """Like a data set of HDF5: a shape, a type, and rows that must be asked for in order."""

    shape = (120, 4)
    dtype = np.dtype("float32")

    def __len__(self) -> int:
        return 120

    def __getitem__(self, rows: Any) -> Any:
        assert (np.diff(rows) > 0).all()
        return INPUTS.numpy()[rows]


def mapped(folder: Path) -> np.ndarray:
    np.save(folder / "inputs.npy", INPUTS.numpy())
    return np.load(folder / "inputs.npy", mmap_mode="r")


def numpy_item(item: torch.Tensor) -> Any:
    return item.numpy()


def with_label(item: torch.Tensor) -> Any:
    return item, 7


KINDS: dict[str, Callable[[Path], Any]] = {
    "tensor": lambda folder: INPUTS,
    "array": lambda folder: INPUTS.numpy(),
    "mapped file": mapped,
    "array-like": lambda folder: Stored(),
    "dataset": lambda folder: Items(),
    "dataset of arrays": lambda folder: Items(numpy_item),
    "dataset of pairs": lambda folder: Items(with_label),
}


def run(data: BagData, checkpoint: Path | None = None, **options: Any) -> TrainingResult:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 3))
    settings = TrainingOptions(**{"epochs": 3, "lr": 0.01, "batch_instances": 32, **options})
    return train(
        model, data, "cc", settings, validation=data, checkpoint=checkpoint, progress=False
    )


def assert_same(one: TrainingResult, other: TrainingResult) -> None:
    for ours, theirs in zip(one.history, other.history, strict=True):
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


@pytest.fixture(params=KINDS)
def inputs(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return KINDS[request.param](tmp_path)


def test_every_kind_of_inputs_trains_to_the_same_numbers(inputs: Any, tmp_path: Path) -> None:
    data = BagData(inputs, BAGS)
    expected = run(BagData(INPUTS, BAGS))
    if isinstance(inputs, Dataset):  # seeds of workers are drawn from the run's generator
        assert run(data).history[0]["train_loss"] == pytest.approx(
            expected.history[0]["train_loss"], rel=0.1
        )
        expected = run(data)
    else:
        assert_same(run(data), expected)
    run(data, tmp_path, epochs=1)
    assert_same(run(data, tmp_path), expected)  # goes on as if never stopped


@pytest.mark.slow
def test_workers_fetch_what_this_process_would(tmp_path: Path) -> None:
    data = BagData(Items(with_label), BAGS)
    expected = run(data)
    run(data, tmp_path, epochs=2, workers=1)
    assert_same(run(data, tmp_path, workers=2), expected)


def test_rows_are_taken_selected_and_sampled_alike(inputs: Any) -> None:
    rows = torch.tensor([7, 3, 119, 0])
    torch.testing.assert_close(take(inputs, rows), INPUTS[rows])
    data = BagData(inputs, BAGS)
    assert data.shape == (4,)
    part = data.select(np.array([12, 2])).select(np.array([1, 0]))
    expected = torch.cat([INPUTS[12:18], INPUTS[66:69]])
    torch.testing.assert_close(take(part.inputs, torch.arange(9)), expected)
    assert part.bags == BAGS.select([2, 12])
    torch.testing.assert_close(sample(inputs, 3), INPUTS[[0, 40, 80]])
    torch.testing.assert_close(sample(inputs, 500), INPUTS)
    model = nn.Linear(4, 3)
    torch.testing.assert_close(predict_logits(model, inputs), model(INPUTS).detach())
    ours, theirs = (measures(totals(model, d), d) for d in (data, BagData(INPUTS, BAGS)))
    assert ours == pytest.approx(theirs)
    assert instances_that_fit(model, inputs, budget=160) == 10


def test_a_mapped_file_is_not_copied_by_selecting(tmp_path: Path) -> None:
    part = BagData(mapped(tmp_path), BAGS).select(np.array([3]))
    assert not isinstance(part.inputs, np.ndarray | torch.Tensor)
    assert len(part) == 6


def test_a_changed_instance_changes_the_fingerprint_of_what_can_be_read(tmp_path: Path) -> None:
    for kind in ("tensor", "array", "mapped file"):
        inputs = KINDS[kind](tmp_path)
        before = BagData(inputs, BAGS).fingerprint()
        changed = INPUTS.numpy().copy()
        changed[60, 1] += 1
        again = torch.from_numpy(changed) if kind == "tensor" else changed
        assert BagData(again, BAGS).fingerprint() != before

    class Named(Items):
        def fingerprint(self) -> str:
            return "another"

    assert BagData(Items(), BAGS).fingerprint() == BagData(Items(), BAGS).fingerprint()
    assert BagData(Named(), BAGS).fingerprint() != BagData(Items(), BAGS).fingerprint()


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ([[1.0]] * 120, "inputs is a list; a torch.Tensor, a numpy array"),
        (3, "inputs is a int"),
        (iter([1]), "inputs is a list_iterator"),
    ],
)
def test_inputs_without_rows_are_refused(inputs: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        BagData(inputs, BAGS)


def test_items_that_cannot_make_a_batch_are_named() -> None:
    with pytest.raises(TypeError, match=r"item \d+ of the inputs is a str; a tensor or an array"):
        run(BagData(Items(str), BAGS))
    ragged = Items(lambda item: item[: 2 + int(item[0] > 0)])
    with pytest.raises(ValueError, match=r"instances have the shapes \(2,\) and \(3,\)"):
        run(BagData(ragged, BAGS))


def test_the_estimator_learns_from_a_dataset(tmp_path: Path) -> None:
    model = LLPClassifier(model="linear", epochs=60, lr=0.03, random_state=0)
    fitted = model.fit_bags(BagData(Items(numpy_item), BAGS), ["a", "b", "c"])
    found = fitted.predict(INPUTS.numpy())
    assert (found == np.array(["a", "b", "c"])[LABELS.numpy()]).mean() > 0.75
    fitted.save(tmp_path / "model")
    again = LLPClassifier.load(tmp_path / "model").predict_proba(INPUTS.numpy())
    np.testing.assert_array_equal(again, fitted.predict_proba(INPUTS.numpy()))


# --- for one's own loop


@pytest.mark.slow
def test_a_plain_data_loader_yields_what_a_loss_takes() -> None:
    sampler = BagBatchSampler(BAGS, 20, seed=3)
    seen = []
    for dataset in (BagDataset(INPUTS, BAGS), BagDataset(Items(with_label), BAGS)):
        for workers in (0, 2):
            loader = DataLoader(
                dataset, batch_sampler=sampler, collate_fn=collate_bags, num_workers=workers
            )
            sampler.set_epoch(0)
            parts = list(loader)
            assert len(parts) == len(loader) == len(sampler)
            sampler.set_epoch(0)
            for index, (inputs, bags) in zip(sampler, parts, strict=True):
                torch.testing.assert_close(inputs, INPUTS[BAGS.rows(index)])
                assert bags == BAGS.select(index)
                seen.append(cc_loss(nn.Linear(4, 3)(inputs), bags).item())
    assert np.isfinite(seen).all()


def test_a_dataset_of_one_s_own_bags_is_collated() -> None:
    fixed = np.zeros((2, 5), dtype=np.float32)
    fixed.setflags(write=False)
    own = [(fixed, [1, 1]), (torch.ones(1, 5), torch.tensor([0, 1]))]
    ((inputs, bags),) = DataLoader(own, batch_size=2, collate_fn=collate_bags)
    assert inputs.shape == (3, 5)
    assert bags == Bags([2, 1], [[1, 1], [0, 1]])
    with pytest.raises(TypeError, match="an item of the dataset is a Tensor; a pair is expected"):
        collate_bags([torch.zeros(3)])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="sum to 3, but its size is 2"):
        collate_bags([(torch.zeros(2, 1), [1, 2])])


def test_items_of_a_bag_dataset_are_bags() -> None:
    dataset = BagDataset(INPUTS, BAGS)
    assert len(dataset) == 30
    torch.testing.assert_close(dataset[-1][0], INPUTS[-3:])
    assert dataset[-1][1].tolist() == BAGS.counts[-1].tolist()
    with pytest.raises(IndexError):
        dataset[30]
    assert len(list(dataset)) == 30  # type: ignore[call-overload]


def test_known_labels_reach_the_loss_through_a_data_loader() -> None:
    bags = Bags([3, 2], [[1, 2], [1, 1]]).with_labels([-1, 0, -1, -1, -1])
    loader = DataLoader(BagDataset(torch.zeros(5, 1), bags), batch_size=2, collate_fn=collate_bags)
    ((_, found),) = loader
    assert found == bags
    logits = torch.randn(5, 2)
    assert cc_loss(logits, found) == cc_loss(logits, bags)


def test_nothing_cannot_be_collated() -> None:
    with pytest.raises(ValueError, match="no items to collate; at least one bag"):
        collate_bags([])


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=30),
    instances=st.integers(1, 40),
    replicas=st.integers(1, 5),
    epoch=st.integers(0, 3),
)
def test_workers_share_an_epoch_evenly(
    sizes: list[int], instances: int, replicas: int, epoch: int
) -> None:
    bags = Bags(sizes, np.array(sizes)[:, None])
    shards = []
    for rank in range(replicas):
        sampler = BagBatchSampler(bags, instances, seed=5, rank=rank, replicas=replicas)
        sampler.set_epoch(epoch)
        shards.append(list(sampler))
        assert len(shards[-1]) == len(sampler)
    assert len({len(shard) for shard in shards}) == 1  # or the others would wait for ever
    batches = list(itertools.chain(*shards))
    for batch in batches:
        assert len(batch) == 1 or bags.sizes[batch].sum() <= instances
    assert {bag for batch in batches for bag in batch} == set(range(len(bags)))
    whole = BagBatchSampler(bags, instances, seed=5)
    whole.set_epoch(epoch)
    extra = len(batches) - len(whole)
    assert 0 <= extra < replicas
    assert sorted(batches)[0] in sorted(whole)


def test_seed_and_epoch_decide_the_order() -> None:
    sampler = BagBatchSampler(BAGS, 20, seed=1)
    epochs = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
    assert epochs[0] != epochs[1] != epochs[2]
    again = BagBatchSampler(BAGS, 20, seed=1)
    again.set_epoch(2)  # as when a loop goes on
    assert list(again) == epochs[2]
    assert list(BagBatchSampler(BAGS, 20, seed=2)) != epochs[0]
    assert next(iter(BagBatchSampler(BAGS, 20, shuffle=False))) == [0, 1, 2]
    assert min(len(batch) for batch in BagBatchSampler(BAGS, 1, min_bags=4)) >= 2


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_epochs_follow_each_other_unless_one_is_set(workers: int) -> None:
    expected = []
    for epoch in range(5):
        one = BagBatchSampler(BAGS, 20, seed=1)
        one.set_epoch(epoch)
        expected.append([BAGS.counts[batch].tolist() for batch in one])
    assert expected[0] != expected[1] != expected[2]
    sampler = BagBatchSampler(BAGS, 20, seed=1)
    loader = DataLoader(
        BagDataset(INPUTS, BAGS),
        batch_sampler=sampler,
        collate_fn=collate_bags,
        num_workers=workers,
        persistent_workers=workers > 0,
    )

    def seen() -> list[Any]:
        return [bags.counts.tolist() for _, bags in loader]

    assert [seen(), seen()] == expected[:2]
    next(iter(loader))  # an epoch that is left early is one too
    assert seen() == expected[3]
    sampler.set_epoch(1)  # as when a loop goes on
    assert len(loader) == len(expected[1])
    assert [seen(), seen()] == expected[1:3]


def test_the_length_is_that_of_the_epoch_that_runs() -> None:
    sizes = np.random.default_rng(0).integers(1, 9, 40)
    sampler = BagBatchSampler(Bags(sizes, sizes[:, None]), 10, seed=1)
    lengths = set()
    for _ in range(8):
        batches = [(len(sampler), batch) for batch in sampler]
        assert {length for length, _ in batches} == {len(batches)}
        lengths.add(len(batches))
    assert len(lengths) > 1


def test_an_iterator_made_before_set_epoch_yields_that_epoch() -> None:
    sampler = BagBatchSampler(BAGS, 20, seed=1)
    waiting = iter(sampler)
    sampler.sampler.set_epoch(3)  # as Lightning does
    assert list(waiting) == list(_set(BagBatchSampler(BAGS, 20, seed=1), 3))


def _set(sampler: BagBatchSampler, epoch: int) -> BagBatchSampler:
    sampler.set_epoch(epoch)
    return sampler


def test_the_place_among_workers_is_asked_when_an_epoch_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampler = BagBatchSampler(BAGS, 20, seed=1)  # there is no process group yet
    alone = len(sampler)
    shares = [list(BagBatchSampler(BAGS, 20, seed=1, rank=r, replicas=2)) for r in range(2)]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        assert list(_set(sampler, 0)) == shares[rank]
        assert len(sampler) == -(-alone // 2)
    other = BagBatchSampler(BAGS, 20, rank=5)
    with pytest.raises(ValueError, match="rank is 5; a whole number from 0 to 1"):
        len(other)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"max_instances": 0}, "max_instances is 0; a whole number from 1"),
        ({"min_bags": 1.5}, r"min_bags is 1\.5"),
        ({"seed": -1}, "seed is -1"),
        ({"replicas": 0}, "replicas is 0"),
        ({"rank": 2, "replicas": 2}, "rank is 2; a whole number from 0 to 1"),
    ],
)
def test_a_sampler_says_what_it_expects(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        BagBatchSampler(BAGS, **arguments)


# --- labels known in part


class Watching(Method):
    """Keeps the batches it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Batch] = []

    def loss(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        self.seen.append(batch)
        return logits.square().mean()


SOME = torch.where(torch.arange(120) % 4 == 0, LABELS, -1)


def test_a_batch_carries_the_labels_of_its_rows() -> None:
    method = Watching()
    for labels in (SOME, None):
        method.seen.clear()
        options = TrainingOptions(epochs=1, batch_instances=50)
        data = BagData(INPUTS, BAGS, labels)
        row = train(nn.Linear(4, 3), data, method, options, progress=False).history[0]
        assert ("train_accuracy" in row) == (labels is not None)
        for batch in method.seen:
            if labels is None:
                assert batch.labels is None
            else:
                assert batch.labels is not None
                assert torch.equal(batch.labels, labels[batch.rows])


def test_supervised_learning_uses_the_labels_that_are_known() -> None:
    labels = SOME.clone()
    labels[:30] = -1  # bags without any
    model = nn.Linear(4, 3)
    options = TrainingOptions(epochs=1, lr=1e-9, weight_decay=0, batch_instances=1000)
    known = labels >= 0
    expected = cross_entropy(model(INPUTS)[known], labels[known]).item()
    right = (model(INPUTS).argmax(-1) == labels)[known].float().mean().item()
    result = train(model, BagData(INPUTS, BAGS, labels), "supervised", options, progress=False)
    assert result.history[0]["train_loss"] == pytest.approx(expected, rel=1e-6)
    assert result.history[0]["train_accuracy"] == pytest.approx(right, abs=1e-6)
    small = TrainingOptions(epochs=2, batch_instances=6)  # some batches have no label
    history = train(model, BagData(INPUTS, BAGS, labels), "supervised", small).history
    assert np.isfinite([row["train_loss"] for row in history]).all()


def test_accuracy_is_that_of_known_labels() -> None:
    model = nn.Linear(4, 3)
    known = SOME >= 0
    expected = (model(INPUTS).argmax(-1) == LABELS)[known].double().mean().item()
    some = BagData(INPUTS, BAGS, SOME)
    assert measures(totals(model, some), some)["accuracy"] == expected


def test_labels_of_which_none_is_known_are_none() -> None:
    assert BagData(INPUTS, BAGS, torch.full((120,), -1)).labels is None
    assert BagData(INPUTS, BAGS, SOME).select(np.array([10, 11])).labels is not None


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (torch.full((120,), 3), r"the label of row 0 is 3; labels lie in 0 \.\. 2, and -1 says"),
        (torch.cat([SOME[:5], torch.full((115,), -2)]), "the label of row 5 is -2"),
        (SOME.float(), "labels has dtype torch.float32; integers"),
        (SOME[:5], r"labels has shape \(5,\)"),
    ],
)
def test_labels_that_cannot_be_are_named(labels: torch.Tensor, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        BagData(INPUTS, BAGS, labels)
