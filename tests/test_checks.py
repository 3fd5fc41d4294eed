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
from bagwise.checks import (
    Check,
    any_number,
    flag,
    list_of,
    maybe,
    number,
    one_of,
    or_else,
    short_text,
    shown,
    text,
    whole,
)
from bagwise.errors import InputError

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
    "drop_last": [0, 1, "yes", None],
    "precision": ["half", "float16", 16, None, torch.float16],
    "accumulate_batches": [0, -1, 2.5, "x", None, True],
    "compile": [0, 1, "yes", None],
    "workers": [-1, 1.5, None, "x", True],
}


@pytest.mark.parametrize(
    ("option", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_an_option_that_cannot_be_used_is_named_with_what_is_expected(
    option: str, value: Any
) -> None:
    is_long = type(value) is int and value == 10**400
    said = "1" + "0" * 39 + "... (401 characters)" if is_long else repr(value)
    given = re.escape(f"{option} is {said}; ")
    with pytest.raises(ValueError, match=rf"^{given}.* is expected\.$"):
        TrainingOptions(**{option: value})


def test_every_option_is_tried_here() -> None:
    assert list(BAD) == [field.name for field in fields(TrainingOptions)]


@pytest.mark.parametrize(
    ("check", "good", "bad", "expected"),
    [
        (whole(1, 9), [1, 9, np.int8(3)], [0, 10, 1.0, True, np.True_, "1"], "a whole number from"),
        (number(0, 1), [0, 1, 0.5, np.float16(1)], [-1, 1.1, math.nan, True], "from 0 to 1"),
        (number(above=0, below=1), [0.5], [0, 1], "of more than 0 and less than 1"),
        (number(0, below=1), [0, 0.5], [1, -1], "of 0 or more and less than 1"),
        (number(0), [0, 1e99], [-1, math.inf, 10**400, np.float32("inf")], "of 0 or more"),
        (number(0, math.inf), [math.inf, 3], [-math.inf, math.nan, 1e200], "of 0 or more"),
        (number(), [-5, 5.0], [math.inf, None], "a number"),
        (any_number, [math.nan, math.inf, np.float32(1), 3], ["1", True, 10**400], "a number"),
        (flag, [True, np.False_], [1, "yes", None], "True or False"),
        (text, ["a\nb", ""], [1, "\ud800"], "text"),
        (short_text, ["a"], ["", "a\nb", "a" * 201, None], "a short text on one line"),
        (maybe(whole()), [None, 0], [-1], "or None"),
        (maybe(list_of(whole())), [None, [1]], [[-1], 3], ""),
        (list_of(text, 1, 2), [["a"]], [[], ["a"] * 3, "a"], "a list of at least 1 and at most 2"),
        (
            or_else(one_of("a", "b"), "a function", callable),
            ["a", len],
            ["c"],
            "one of a, b or a f",
        ),
    ],
)
def test_a_check_takes_what_it_says(
    check: Check, good: list[Any], bad: list[Any], expected: str
) -> None:
    for value in good:
        check(value, "place")
    for value in bad:
        with pytest.raises(
            InputError, match=rf"^place(\[0\])? is .*; .*{expected}.* is expected\.$"
        ):
            check(value, "place")


@pytest.mark.parametrize("value", [[1] * 300, {str(n): n for n in range(300)}, ["x" * 3000]])
def test_a_large_value_is_said_in_a_few_words(value: Any) -> None:
    kind = "table" if isinstance(value, dict) else "list"
    with pytest.raises(InputError, match=f"^place is a {kind} of {len(value)}; text is expected.$"):
        text(value, "place")


def test_a_deep_value_can_be_shown() -> None:
    deep: list[Any] = []
    for _ in range(10**5):
        deep = [deep]
    assert shown(deep) == "a list of 1"


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
    assert kinds == {int, float, bool, str, dict, type(None)}  # none of numpy's
    assert (options.epochs, options.lr, options.seed) == (2, 0.25, 2**62)
    data = BagData(torch.randn(8, 2), Bags([4, 4], [[2, 2], [1, 3]]))
    model = torch.nn.Linear(2, 2)
    result = train(model, data, "cc", options, checkpoint=tmp_path, progress=False)
    assert len(result.history) == 2


def test_the_largest_seed_and_the_smallest_rate_are_taken() -> None:
    assert TrainingOptions(seed=2**63 - 1, lr=1e-300).seed == 2**63 - 1
    torch.Generator().manual_seed(2**63 - 1)
