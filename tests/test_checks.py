from __future__ import annotations

import math
import re
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bagwise import BagData, Bags, TrainingOptions, train
from bagwise.training.options import _OPTIONS

BAD: dict[str, list[Any]] = {
    "epochs": [0, -1, 1.0, "3", None, True, np.float64(3), math.nan, 10**30],
    "lr": [0, -1e-3, math.nan, math.inf, "1e-3", None, True, 10**400, np.float32("inf")],
    "weight_decay": [-1e-9, math.inf, math.nan, "x", None, False],
    "batch_instances": [0, 2.5, "x", None, math.inf, 2**60],
    "batch_bags": [0, 2.5, "x", None, True],
    "schedule": ["up", None, 1, ["constant"], np.array(["constant", "x"])],
    "average": [0, 1, 1.5, "x", math.nan, True],
    "clip": [0, -1, math.nan, math.inf, "x", True],
    "select": ["luck", None, 0],
    "patience": [0, 2.5, "x", math.nan, True, -3],
    "seed": [-1, 2**63, 1.5, "x", None, math.nan, True],
    "optimizer": ["adamax", None, 1, ["adam"]],
    "optimizer_options": [None, [1], "x", {1: 2}],
    "schedule_options": [None, [1], "x", {1: 2}],
    "augment": [1, [len], True],
    "workers": [-1, 1.5, None, "x", True],
}


@pytest.mark.parametrize(
    ("option", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_an_option_that_cannot_be_used_is_named_with_what_is_expected(
    option: str, value: Any
) -> None:
    given = re.escape(f"{option} is {value!r}; ")
    with pytest.raises(ValueError, match=rf"^{given}.* is expected\.$"):
        TrainingOptions(**{option: value})


def test_every_option_has_a_rule_and_is_tried_here() -> None:
    names = [field.name for field in fields(TrainingOptions)]
    assert list(_OPTIONS) == names
    assert set(BAD) == set(names)


def test_numbers_may_be_numpys_and_are_kept_as_pythons(tmp_path: Path) -> None:
    options = TrainingOptions(
        epochs=np.int32(2),  # type: ignore[arg-type]
        lr=np.float32(0.25),  # type: ignore[arg-type]
        weight_decay=0,
        batch_instances=np.uint16(8),  # type: ignore[arg-type]
        average=np.float64(0.5),
        clip=np.float16(2),  # type: ignore[arg-type]
        patience=np.int8(1),  # type: ignore[arg-type]
        seed=np.int64(2**62),  # type: ignore[arg-type]
    )
    kinds = {type(value) for value in asdict(options).values()}
    assert kinds == {int, float, str, dict, type(None)}  # none of numpy's
    assert (options.epochs, options.lr, options.seed) == (2, 0.25, 2**62)
    data = BagData(torch.randn(8, 2), Bags([4, 4], [[2, 2], [1, 3]]))
    model = torch.nn.Linear(2, 2)
    result = train(model, data, "cc", options, checkpoint=tmp_path, progress=False)
    assert len(result.history) == 2


def test_the_largest_seed_and_the_smallest_rate_are_taken() -> None:
    assert TrainingOptions(seed=2**63 - 1, lr=1e-300).seed == 2**63 - 1
    torch.Generator().manual_seed(2**63 - 1)
