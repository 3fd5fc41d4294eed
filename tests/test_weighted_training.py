"""Training on rows with weights is training on the rows written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bagwise import BagData, BagDataset, Bags, LLPClassifier, TrainingOptions, collate_bags, train
from bagwise.errors import InputError
from bagwise.methods import Batch, make_method
from bagwise.networks import Standardize
from bagwise.training.bag_parts import Parts
from bagwise.training.evaluation import measures, totals

SIZES, C = [4, 3, 5, 2, 4, 3], 3


def weighted(seed: int = 0) -> tuple[BagData, torch.Tensor]:
    """Rows that stand for 1 to 4 instances of one label each, and their weights."""
    rng = np.random.default_rng(seed)
    N = sum(SIZES)
    copies, labels = rng.integers(1, 5, size=N), rng.integers(C, size=N)
    counts = np.zeros((len(SIZES), C), np.int64)
    np.add.at(counts, (np.repeat(np.arange(len(SIZES)), SIZES), labels), copies)
    inputs = torch.from_numpy(rng.normal(size=(N, 4)) + np.eye(C, 4)[labels])
    bags = Bags(SIZES, counts, weights=copies)
    labels[::4] = -1
    return BagData(inputs, bags, torch.from_numpy(labels)), torch.from_numpy(copies)


def written(data: BagData, copies: torch.Tensor) -> BagData:
    assert data.labels is not None
    inputs, labels = (x.repeat_interleave(copies, 0) for x in (data.inputs, data.labels))
    return BagData(inputs, data.bags.written_out(), labels)


METHODS = ["cc", "rc", "dllp", "pvc", "ot", "pll", "llpfc", "mixbag", "supervised", "cc_approx"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_as_from_rows_written_out(method: str) -> None:
    data, copies = weighted()
    # All bags are in one batch: batches are made by the rows that are there.
    options = TrainingOptions(
        epochs=5, lr=0.3, optimizer="sgd", batch_instances=1000, schedule="one_cycle"
    )
    found = []
    for part in (data, written(data, copies)):
        torch.manual_seed(0)
        model = nn.Linear(4, C).double()
        made = make_method("rc", record_gap=True) if method == "rc" else make_method(method)
        result = train(model, part, made, options, validation=part, progress=False)
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]
        found.append((rows, result.model.state_dict()))
    for row, expected in zip(found[0][0], found[1][0], strict=True):
        assert row == pytest.approx(expected, abs=1e-6)
    torch.testing.assert_close(found[0][1], found[1][1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("target", ["posterior", "argmax", "labeling", "prediction"])
@pytest.mark.parametrize("bag_loss", ["cc", "dllp"])
def test_two_views_of_weighted_rows(target: str, bag_loss: str) -> None:
    data, copies = weighted()
    random = torch.Generator().manual_seed(0)
    logits, second = torch.randn(2, len(data), C, generator=random, dtype=torch.float64)
    losses = []
    for bags, m in ((data.bags, torch.ones_like(copies)), (data.bags.written_out(), copies)):
        method = make_method("two_views", target=target, bag_loss=bag_loss, start=0, ramp=0)
        method.begin_epoch(1, random)
        batch = Batch(
            torch.arange(int(m.sum())), bags, second_logits=second.repeat_interleave(m, 0)
        )
        losses.append(method.loss(logits.repeat_interleave(m, 0), batch).item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-9)


def test_parts_of_a_weighted_bag_are_those_of_rows_written_out() -> None:
    rng = np.random.default_rng(0)
    copies = rng.integers(1, 4, size=12)
    counts = [[int(copies.sum()) - 9, 4, 5]]
    bags = Bags([12], counts, weights=copies)
    m, first = torch.from_numpy(copies), np.cumsum(copies) - copies
    compared = []
    for known, with_copies in ((bags, False), (bags.written_out(), True)):
        parts = Parts(known, 5, kept := {})
        assert kept
        random = torch.Generator().manual_seed(1)
        for _ in range(3):  # epochs, the second and third of which know all rows
            parts.begin_epoch()
            for rows in torch.randperm(12, generator=random).split(4):
                logits = torch.randn(4, C, generator=random)
                if with_copies:
                    logits = logits.repeat_interleave(m[rows], 0)
                    rows = torch.cat(
                        [torch.arange(first[k], first[k] + copies[k]) for k in rows.tolist()]
                    )
                part = parts.completed(Batch(rows, None, part_of=0), logits).bags
                assert part is not None
                compared.append(part)
    for one, other in zip(compared[:9], compared[9:], strict=True):
        assert np.array_equal(one.min_counts, other.min_counts)
        np.testing.assert_allclose(one.expected_counts, other.expected_counts, atol=1e-6)
        assert one.potentials is not None
        assert other.potentials is not None
        np.testing.assert_allclose(one.potentials.log_f, other.potentials.log_f, atol=1e-4)


def test_measures_are_per_instance() -> None:
    data, copies = weighted()
    model = nn.Linear(4, C).double()
    one, other = (measures(totals(model, d), d) for d in (data, written(data, copies)))
    assert one == pytest.approx(other, abs=1e-9)


def test_weights_reach_a_loss_through_a_data_loader() -> None:
    data, _ = weighted()
    dataset = BagDataset(data.inputs, data.bags)
    _, bags = collate_bags([dataset[b] for b in range(len(dataset))])
    assert bags == data.bags


@pytest.mark.parametrize("plain", [True, False])
def test_standardization_is_that_of_rows_written_out(plain: bool) -> None:
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(6, 3, 2, 2, generator=random)
    copies = torch.tensor([1, 5, 2, 2, 1, 3])
    one = Standardize.of(inputs, plain, copies)
    other = Standardize.of(inputs.repeat_interleave(copies, 0), plain)
    torch.testing.assert_close(one.mean, other.mean)
    torch.testing.assert_close(one.std, other.std)


def cells(
    N: int = 60, B: int = 12
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[int, np.ndarray]]:
    """Cells of a table: features, bag, number, label, and the counts of the bags."""
    rng = np.random.default_rng(1)
    X, bags, n = rng.normal(size=(N, 2)), np.arange(N) % B, rng.integers(1, 5, size=N)
    y = (X[:, 0] + 0.5 * rng.normal(size=N) > 0).astype(int)
    counts = {b: np.bincount(y[bags == b], n[bags == b], minlength=2).astype(int) for b in range(B)}
    return X, bags, n, y, counts


@pytest.mark.parametrize(
    "options",
    [{"model": "linear"}, {"model": "linear", "epochs": 3, "batch_instances": 1000}],
    ids=["likelihood", "steps"],
)
def test_sample_weights_are_frequencies(options: dict[str, Any]) -> None:
    X, bags, n, _, counts = cells()
    one = LLPClassifier(**options, random_state=0).fit(X, bags, counts, sample_weight=n)
    other = LLPClassifier(**options, random_state=0)
    other.fit(np.repeat(X, n, axis=0), np.repeat(bags, n), counts)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=2e-4)


def test_rows_of_weight_0_are_left_out_and_labels_are_repeated() -> None:
    X, bags, n, y, counts = cells()
    more, none = np.vstack([X, [[99.0, 99.0]]]), np.append(n, 0)
    model = LLPClassifier(model="linear")
    expected = model.fit(X, bags, counts, sample_weight=n).predict_proba(X)
    found = model.fit(more, np.append(bags, 3), counts, sample_weight=none).predict_proba(X)
    np.testing.assert_allclose(found, expected)
    labeled = model.fit(X, y, sample_weight=n).predict_proba(X)
    repeated = model.fit(np.repeat(X, n, axis=0), np.repeat(y, n)).predict_proba(X)
    np.testing.assert_allclose(labeled, repeated, atol=1e-9)


def test_a_perceptron_takes_weights() -> None:
    X, bags, n, y, counts = cells(500, 100)
    model = LLPClassifier(epochs=20, random_state=0).fit(X, bags, counts, sample_weight=n)
    assert model.score(X, y, sample_weight=n) > 0.75


def test_survey_weights_are_refused() -> None:
    X, bags, n, _, counts = cells()
    with pytest.raises(InputError, match=r"sample_weight\[0\] is .*\.5; .* Survey weights are not"):
        LLPClassifier().fit(X, bags, counts, sample_weight=n + 0.5)
