"""Training on several groupings of the same rows, jointly and one by one."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch import nn

from bagwise import BagData, Bags, Groupings, TrainingOptions, bag_posterior, cc_loss, train
from bagwise.data.inputs import take
from bagwise.errors import InputError, InputTypeError
from bagwise.methods import Batch, make_method
from bagwise.training.bag_parts import Parts
from bagwise.training.batch_knowledge import Known

N, C = 24, 3


def counted(labels: np.ndarray, n_classes: int = C, **bags_of_rows: Any) -> Groupings:
    """Groupings of rows with these labels, -1 for rows that a grouping leaves out."""
    found = {}
    for name, given in bags_of_rows.items():
        of_row = np.asarray(given)
        counts = np.zeros((of_row.max() + 1, n_classes), np.int64)
        np.add.at(counts, (of_row[of_row >= 0], labels[of_row >= 0]), 1)
        found[name] = (of_row, Bags(np.bincount(of_row[of_row >= 0]), counts))
    return Groupings(found)


def example(seed: int = 0) -> tuple[torch.Tensor, np.ndarray, Groupings]:
    """Rows that tell their labels, by ward and by age; three have no age."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(C, size=N)
    inputs = torch.from_numpy(rng.normal(size=(N, 4)) + 2 * np.eye(C, 4)[labels]).float()
    age = rng.permutation(N) // 5
    age[[2, 9, 20]] = -1
    _, age = np.unique(age, return_inverse=True)
    return inputs, labels, counted(labels, ward=np.arange(N) // 6, age=age - 1)


def model(d: int = 4, n_classes: int = C) -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(d, n_classes)


def steps(**more: Any) -> TrainingOptions:
    return TrainingOptions(**{"epochs": 4, "lr": 0.05, "batch_instances": 12} | more)


def outcome(result: Any) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    history = [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]
    return history, result.model.state_dict()


def assert_same(one: Any, other: Any) -> None:
    """Bit for bit."""
    assert outcome(one)[0] == outcome(other)[0]
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name])


@pytest.mark.parametrize("method", ["cc", "rc", "dllp", "ot", "llpfc", "mixbag"])
def test_composite_training_is_that_of_stacked_rows(method: str) -> None:
    inputs, labels, groupings = example()
    rows, bags = groupings.stacked()
    truth = torch.from_numpy(labels)
    composite = BagData.of_groupings(inputs, groupings, truth, joint=False)
    stacked = BagData(inputs[rows], bags, truth[rows])
    found = [
        train(model(), data, method, steps(), validation=data, progress=False)
        for data in (composite, stacked)
    ]
    assert_same(*found)


@pytest.mark.parametrize(
    ("method", "of_method"), [("cc", {}), ("rc", {}), ("rc", {"instance_loss": "squared_error"})]
)
@pytest.mark.parametrize("batch", [12, 100])
def test_joint_training_learns_and_resumes_bit_for_bit(
    method: str, of_method: dict[str, Any], batch: int, tmp_path: Path
) -> None:
    inputs, labels, groupings = example()
    data = BagData.of_groupings(inputs, groupings, torch.from_numpy(labels))
    options = {"batch_instances": batch, "lr": 0.1}
    learns = partial(make_method, method, **of_method)
    straight = train(model(), data, learns(), steps(epochs=40, **options), progress=False)
    for epochs in (3, 40):
        stopped = train(
            model(),
            data,
            learns(),
            steps(epochs=epochs, **options),
            checkpoint=tmp_path,
            progress=False,
        )
    assert_same(straight, stopped)
    assert straight.history[-1]["train_accuracy"] > 0.9


def test_checkpoints_are_of_the_same_groupings(tmp_path: Path) -> None:
    inputs, _, groupings = example()
    data = BagData.of_groupings(inputs, groupings)
    train(model(), data, "cc", steps(), checkpoint=tmp_path, progress=False)
    other = BagData.of_groupings(inputs, groupings, joint=False)
    with pytest.raises(InputError, match="belongs to another run"):
        train(model(), other, "cc", steps(), checkpoint=tmp_path, progress=False)


def settled(
    logits: torch.Tensor, groupings: Groupings, rounds: int = 60, **options: Any
) -> tuple[float, torch.Tensor, dict[str, torch.Tensor]]:
    """The loss and its gradient, mean per instance, of batches of one grouping each."""
    data = BagData.of_groupings(torch.zeros(len(logits), 1), groupings).joined()
    method = make_method("cc", **options)
    assert data.shared is not None
    known = Known(data, Parts(data.bags, 10**6, {}), method.kept, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    value, gradient = 0.0, torch.zeros_like(logits)
    for _ in range(rounds):
        value, gradient = 0.0, torch.zeros_like(logits)
        for batch in method.batches(data, 10**6, generator):
            batch = known.of_rows(batch)
            rows = data.shared.row[batch.rows]
            assert len(rows.unique()) == len(rows)
            some = logits[rows].requires_grad_()
            assert batch.messages is not None
            assert batch.bags is not None
            loss = method.loss(some, batch) * batch.messages.n_instances(batch.bags)
            loss.backward()  # type: ignore[no-untyped-call]
            value += loss.item()
            gradient.index_add_(0, rows, some.grad)
    return value, gradient, method.kept


def test_settled_messages_give_the_joint_loss_and_its_gradient() -> None:
    _, labels, groupings = example()
    rng = np.random.default_rng(3)
    logits = torch.from_numpy(rng.normal(size=(N, C)) + 2 * np.eye(C)[labels])
    value, gradient, _ = settled(logits, groupings)
    leaf = logits.clone().requires_grad_()
    expected = cc_loss(leaf, groupings, reduction="sum", settled=1e-9, max_rounds=500)
    expected.backward()  # type: ignore[no-untyped-call]
    assert value == pytest.approx(expected.item(), abs=1e-4)
    torch.testing.assert_close(gradient, leaf.grad, atol=1e-4, rtol=0)


def enumerated(log_p: np.ndarray, groupings: Groupings) -> tuple[float, np.ndarray]:
    """log P of all counts, and each row's posterior, from all labelings."""
    n, c = log_p.shape
    every = np.array(list(itertools.product(range(c), repeat=n)))
    fits = np.ones(len(every), np.bool_)
    for g in groupings:
        for b, counts in enumerate(g.bags.counts):
            inside = every[:, g.bag_of_row == b]
            fits &= (np.stack([(inside == k).sum(1) for k in range(c)], 1) == counts).all(1)
    every = every[fits]
    scores = log_p[np.arange(n), every].sum(axis=1)
    share = np.exp(scores - logsumexp(scores))
    return float(logsumexp(scores)), np.einsum("l,lnc->nc", share, np.eye(c)[every])


@pytest.mark.parametrize("seed", range(3))
def test_without_loops_batches_learn_from_the_exact_posterior(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(C, size=7)
    # A chain: bags 0 1 2 | 3 4 | 5 6 of one grouping, 2 3 | 4 5 of the other.
    groupings = counted(labels, ward=[0, 0, 0, 1, 1, 2, 2], age=[-1, -1, 0, 0, 1, 1, -1])
    logits = torch.from_numpy(rng.normal(size=(7, C)))
    log_p = logits.log_softmax(-1).numpy()
    log_likelihood, posterior = enumerated(log_p, groupings)
    value, gradient, _ = settled(logits, groupings)
    assert -value == pytest.approx(log_likelihood, abs=1e-4)
    np.testing.assert_allclose(gradient.numpy(), np.exp(log_p) - posterior, atol=1e-4)


def test_a_hidden_ward_is_what_its_county_leaves_over() -> None:
    labels = np.array([0, 1, 1, 2, 0, 2])
    groupings = counted(labels, ward=[0, 0, 1, 1, -1, -1], county=[0] * 6)
    data = BagData.of_groupings(torch.zeros(6, 2), groupings)
    assert len(data.bags) == 3
    joined = data.joined()
    assert joined.bags.counts.tolist() == [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    assert joined.shared is not None
    assert joined.shared.degrees.tolist() == [1] * 6


def test_joint_rows_with_weights_are_rows_written_out() -> None:
    rng = np.random.default_rng(0)
    copies = rng.integers(1, 4, size=10)
    labels = rng.integers(C, size=10)
    inputs = torch.from_numpy(rng.normal(size=(10, 4))).float()
    bags_of_rows = {"ward": np.arange(10) // 4, "age": rng.permutation(10) // 4}
    groupings = {}
    for name, of_row in bags_of_rows.items():
        counts = np.zeros((3, C), np.int64)
        np.add.at(counts, (of_row, labels), copies)
        weights = copies[np.argsort(of_row, kind="stable")]
        groupings[name] = (of_row, Bags(np.bincount(of_row), counts, weights=weights))
    written = counted(
        np.repeat(labels, copies), **{k: np.repeat(v, copies) for k, v in bags_of_rows.items()}
    )
    found = []
    for rows, grouped in (
        (inputs, Groupings(groupings)),
        (inputs.repeat_interleave(torch.from_numpy(copies), 0), written),
    ):
        data = BagData.of_groupings(rows, grouped)
        options = steps(batch_instances=1000, epochs=6, optimizer="sgd", lr=0.5)
        found.append(train(model(), data, "cc", options, progress=False))
    (one, weights), (other, expected) = (outcome(result) for result in found)
    assert [row["train_loss"] for row in one] == pytest.approx(
        [row["train_loss"] for row in other], abs=1e-5
    )
    torch.testing.assert_close(weights, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", ["cc", "rc"])
def test_bags_larger_than_a_batch_are_joined_in_parts(method: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=300)
    inputs = torch.from_numpy(rng.normal(size=(300, 2)) + 1.5 * np.eye(2)[labels]).float()
    half = (labels + (rng.random(300) < 0.3)) % 2  # bags of different shares
    groupings = counted(labels, 2, half=half, small=rng.permutation(300) // 10)
    data = BagData.of_groupings(inputs, groupings, torch.from_numpy(labels))
    options = steps(batch_instances=40, epochs=12, lr=0.02)
    result = train(model(2, 2), data, method, options, progress=False)
    assert result.history[-1]["train_accuracy"] > 0.8


def test_known_labels_are_told_to_all_groupings() -> None:
    _, labels, groupings = example()
    known = np.where(np.arange(N) % 5 == 0, labels, -1)
    told = Groupings({g.name: (g.bag_of_row, g.bags.with_labels(known[g.rows])) for g in groupings})
    logits = torch.zeros(N, C, dtype=torch.float64)
    _, gradient, kept = settled(logits, told)
    rows = np.flatnonzero(known >= 0)
    weights = (logits.softmax(-1) - gradient).numpy()
    np.testing.assert_allclose(weights[rows], np.eye(C)[known[rows]], atol=1e-6)
    assert not kept["messages"][rows].any()
    expected = bag_posterior(np.zeros((N, C)), told, max_rounds=500).weights
    counted_rows = told.degrees > 0
    np.testing.assert_allclose(weights[counted_rows], expected[counted_rows], atol=1e-3)


def test_held_out_bags_leave_their_rows_in_other_groupings() -> None:
    inputs, labels, groupings = example()
    data = BagData.of_groupings(inputs, groupings, torch.from_numpy(labels))
    part = data.select(np.array([5, 0, 1]))
    assert part.groupings is not None
    assert [len(g.bags) for g in part.groupings] == [2, 1]
    assert part.groupings.n_instances == N
    rows, bags = part.groupings.stacked()
    assert bags == part.bags
    taken = take(part.inputs, torch.arange(len(part)))
    assert np.array_equal(taken, inputs[rows])
    result = train(model(), part, "cc", steps(), validation=data, progress=False)
    assert "val_bag_loss" in result.history[0]
    with pytest.raises(IndexError, match="there is no bag 99"):
        groupings.select([99])


def test_an_epochs_batches_have_every_bag_once_and_no_row_twice() -> None:
    inputs, _, groupings = example()
    data = BagData.of_groupings(inputs, groupings).joined()
    batches: list[Batch] = list(
        make_method("cc").batches(data, 12, torch.Generator().manual_seed(0))
    )
    rows = torch.cat([batch.rows for batch in batches])
    assert rows.sort().values.tolist() == list(range(len(data)))
    assert data.shared is not None
    for batch in batches:
        own = data.shared.row[batch.rows]
        assert len(own.unique()) == len(own) <= 12
        assert len(data.shared.grouping[batch.rows].unique()) == 1


@pytest.mark.parametrize("method", ["dllp", "cc_approx", "rc_approx", "ot", "supervised"])
def test_methods_that_cannot_join_groupings_say_so(method: str) -> None:
    inputs, labels, groupings = example()
    data = BagData.of_groupings(inputs, groupings, torch.from_numpy(labels))
    with pytest.raises(InputError, match=r"cannot learn from several groupings jointly.*joint=Fa"):
        train(model(), data, method, steps(), progress=False)


def test_wrong_groupings_are_refused() -> None:
    inputs, _, groupings = example()
    with pytest.raises(InputTypeError, match="groupings is a Bags"):
        BagData.of_groupings(inputs, Bags([1], [[1]]))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="23 rows of inputs, but the groupings have 24"):
        BagData.of_groupings(inputs[1:], groupings)
