"""Parts of one's own loop: items that are dictionaries, and resuming within an epoch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, Dataset

from bagwise import BagBatchSampler, BagDataset, Bags, cc_loss, collate_bags

BAGS = Bags([3, 2, 4], [[1, 2], [2, 0], [3, 1]])
TOKENS = {
    "input_ids": torch.arange(36).reshape(9, 4) % 7,
    "attention_mask": np.ones((9, 4), dtype=np.int64),
}


class Texts(Dataset[dict[str, Any]]):
    """Texts as a tokenizer leaves them: lists of numbers."""

    def __getitem__(self, row: int) -> dict[str, Any]:
        if row >= len(self):
            raise IndexError(row)
        return {name: values[row].tolist() for name, values in TOKENS.items()}

    def __len__(self) -> int:
        return 9


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        embedded: torch.Tensor = self.embedding(input_ids) * attention_mask[..., None]
        return embedded.mean(1)


@pytest.mark.parametrize("inputs", [TOKENS, Texts()], ids=["dictionary", "dataset"])
def test_a_batch_of_dictionaries_is_what_model_and_loss_take(inputs: Any) -> None:
    sampler = BagBatchSampler(BAGS, max_instances=6, shuffle=False)
    dataset = BagDataset(inputs, BAGS)
    assert len(dataset) == 3
    seen = []
    for batch in DataLoader(dataset, batch_sampler=sampler, collate_fn=collate_bags):
        bags = batch.pop("bags")
        assert list(batch) == ["input_ids", "attention_mask"]
        cc_loss(Classifier()(**batch), bags).backward()
        seen.append((batch["input_ids"], bags))
    assert torch.equal(torch.cat([ids for ids, _ in seen]), TOKENS["input_ids"])
    assert Bags.join([bags for _, bags in seen]) == BAGS


def test_what_else_is_known_of_bags_goes_with_dictionaries_too() -> None:
    bags = Bags.from_ranges([[0, 1], [1, 0]], [[2, 3], [2, 1]], [3, 2]).with_labels([-1] * 4 + [0])
    dataset = BagDataset({"x": torch.zeros(5, 1)}, bags)
    assert collate_bags([dataset[0], dataset[1]])["bags"] == bags


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([{"x": [1.0, 2.0]}], r"has the names \['x'\].*label counts \(C,\) of the bag as 'counts'"),
        ([{"counts": [1, 1]}], "has the names .*instances are expected"),
        (
            [{"x": [1], "counts": [1]}, {"y": [1], "counts": [1]}],
            "item 1 is .* all of them the same names",
        ),
        ([{"x": [1], "counts": [1]}, ([1], [1])], "item 1 is a tuple and item 0 a dictionary"),
        ([{"x": [1], "y": [1, 2], "counts": [1]}], r"\[2\] instances of 'y', but \[1\] of 'x'"),
        ([{"x": [1, 2], "counts": [1]}], "sum to 1, but its size is 2"),
        (
            [{"x": torch.zeros(1, 3), "counts": [1]}, {"x": torch.zeros(1, 2), "counts": [1]}],
            r"item 1 has 'x' of shape \(2,\) and item 0 \(3,\).*pad texts to one length",
        ),
    ],
)
def test_dictionaries_that_do_not_fit_together_are_named(items: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        collate_bags(items)


def test_inputs_by_name_have_a_row_for_each_instance() -> None:
    with pytest.raises(ValueError, match=r"input 'y': there are 8 rows.*the bags have 9 instances"):
        BagDataset({"x": torch.zeros(9), "y": torch.zeros(8)}, BAGS)
    with pytest.raises(TypeError, match="input 'x': inputs is a list"):
        BagDataset({"x": [0] * 9}, BAGS)
    for inputs in ({}, {"counts": torch.zeros(9)}, {"bags": torch.zeros(9)}):
        with pytest.raises(ValueError, match=r"at least one is needed, and 'counts' and 'bags'"):
            BagDataset(inputs, BAGS)
    with pytest.raises(TypeError, match="'text' of item 0 of the inputs is a str; numbers are"):
        BagDataset(_Strings(), BAGS)[0]


class _Strings(Texts):
    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"text": "a word"}


@pytest.mark.parametrize(
    ("shape", "advice"),
    [
        ((4, 2), r"all rows of each bag: bags.select\(index\) has bags.rows\(index\)\.$"),
        ((9, 3), r"one output for each class\.$"),
        ((9,), r"also for two: torch.stack\(\[0 \* logit, logit\], 1\)\.$"),
        ((9, 1), r"also for two: torch.stack"),
    ],
)
def test_logits_of_a_wrong_shape_come_with_advice(shape: tuple[int, ...], advice: str) -> None:
    with pytest.raises(
        ValueError, match=rf"these bags have 9 instances and 2 classes\. .*{advice}"
    ):
        cc_loss(torch.zeros(shape), BAGS)
    logit = torch.zeros(9, requires_grad=True)
    cc_loss(torch.stack([0 * logit, logit], 1), BAGS).backward()


# --- resuming within an epoch


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=25),
    replicas=st.integers(1, 3),
    data=st.data(),
)
def test_a_resumed_epoch_has_exactly_the_batches_that_were_left(
    sizes: list[int], replicas: int, data: st.DataObject
) -> None:
    bags = Bags(sizes, np.array(sizes)[:, None])

    def samplers() -> list[BagBatchSampler]:
        return [
            BagBatchSampler(bags, 7, seed=3, rank=rank, replicas=replicas)
            for rank in range(replicas)
        ]

    whole = [list(itertools.chain(*(sampler for _ in range(3)))) for sampler in samplers()]
    used = data.draw(st.integers(0, len(whole[0]) - 1))
    running = samplers()
    iterators = [itertools.chain(*(sampler for _ in range(3))) for sampler in running]
    for iterator, expected in zip(iterators, whole, strict=True):
        assert list(itertools.islice(iterator, used)) == expected[:used]
    states = [sampler.state_dict() for sampler in running]
    assert all(state == states[0] for state in states)
    for sampler, expected in zip(samplers(), whole, strict=True):
        sampler.load_state_dict(states[0])
        left = itertools.chain(*(sampler for _ in range(sampler.epoch, 3)))
        assert list(left) == expected[used:]


def test_another_number_of_workers_shares_what_was_left() -> None:
    bags = Bags([2] * 21, [[2]] * 21)
    pair = [BagBatchSampler(bags, 2, seed=1, rank=rank, replicas=2) for rank in range(2)]
    used = [batch for sampler in pair for batch in itertools.islice(sampler, 4)]
    left = []
    for rank in range(3):
        sampler = BagBatchSampler(bags, 2, seed=1, rank=rank, replicas=3)
        sampler.load_state_dict(pair[0].state_dict(batches=4))
        left.append(list(sampler))
    assert [len(batches) for batches in left] == [5, 5, 5]  # 13 of them, 2 twice
    everything = {tuple(batch) for batch in itertools.chain(used, *left)}
    assert everything == {(bag,) for bag in range(21)}
    assert not {tuple(batch) for batch in itertools.chain(*left)} & {*map(tuple, used[2:4])}


def test_the_epoch_of_a_loaded_state_may_be_set() -> None:
    sampler = BagBatchSampler(BAGS, 3, seed=1)
    sampler.set_epoch(4)
    expected = list(sampler)
    sampler.set_epoch(4)
    assert next(iter(sampler)) == expected[0]
    resumed = BagBatchSampler(BAGS, 3, seed=1)
    resumed.load_state_dict(sampler.state_dict())
    assert resumed.epoch == 4
    resumed.set_epoch(4)  # as a loop over the epochs that are left does
    assert list(resumed) == expected[1:]
    resumed.set_epoch(4)
    assert list(resumed) == expected


@pytest.mark.slow
def test_a_loop_counts_where_processes_fetch_ahead() -> None:
    bags = Bags([2] * 12, [[1, 1]] * 12)

    def loader(sampler: BagBatchSampler) -> Any:
        dataset = BagDataset(torch.arange(24.0), bags)
        return DataLoader(dataset, batch_sampler=sampler, collate_fn=collate_bags, num_workers=2)

    sampler = BagBatchSampler(bags, 4, seed=1)
    expected = [inputs.tolist() for inputs, _ in loader(sampler)]
    sampler.set_epoch(0)
    batches = iter(loader(sampler))
    assert [next(batches)[0].tolist() for _ in range(2)] == expected[:2]
    assert sampler.state_dict() != sampler.state_dict(batches=2)  # it is ahead
    resumed = BagBatchSampler(bags, 4, seed=1)
    resumed.load_state_dict(sampler.state_dict(batches=2))
    assert [inputs.tolist() for inputs, _ in loader(resumed)] == expected[2:]


def test_a_state_of_another_sampler_is_refused() -> None:
    state = BagBatchSampler(BAGS, 4, seed=1).state_dict()
    with pytest.raises(ValueError, match="a sampler with seed 1, and here it is 2; make the"):
        BagBatchSampler(BAGS, 4, seed=2).load_state_dict(state)
    with pytest.raises(ValueError, match=r"a sampler with bags '.*same bags"):
        BagBatchSampler(BAGS.select([0, 1]), 4, seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match="load what state_dict of a BagBatchSampler returned"):
        BagBatchSampler(BAGS, 4, seed=1).load_state_dict({"epoch": 1})
    with pytest.raises(ValueError, match="batches is 1; a whole number from 0 to 0"):
        BagBatchSampler(BAGS, 4).state_dict(batches=1)
