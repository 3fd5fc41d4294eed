"""Losses as modules: the function with its options."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import bagwise
from bagwise import Bags, CCLoss, Groupings, RCLoss, cc_loss, rc_loss
from bagwise.losses.modules import LossModule

LOGITS = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
BAGS = Bags([3, 2], [[1, 1, 1], [2, 0, 0]])
STORED = torch.zeros(5, 3)
GIVEN: dict[str, tuple[Any, ...]] = {
    "rc_loss": (LOGITS, BAGS, STORED),
    "ot_loss": (LOGITS, BAGS, STORED),
    "pll_loss": (LOGITS, BAGS, STORED),
    "llpfc_loss": (
        LOGITS,
        torch.tensor([0, 1, 1, 0, 1]),
        LOGITS.softmax(-1)[:, None].expand(5, 3, 3),
    ),
    "view_loss": (LOGITS, LOGITS.softmax(-1)),
}
FUNCTIONS = sorted(name for name in bagwise.__all__ if name.endswith("_loss"))


def module_of(name: str) -> type[LossModule]:
    """The class that belongs to a function, by its name alone."""
    (found,) = (
        getattr(bagwise, other)
        for other in bagwise.__all__
        if other.endswith("Loss") and other.lower() == name.replace("_", "")
    )
    assert issubclass(found, LossModule)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_loss_has_a_module_that_computes_it(name: str) -> None:
    function, module = getattr(bagwise, name), module_of(name)
    assert module.function is function
    given = GIVEN.get(name, (LOGITS, BAGS))
    assert torch.equal(module()(*given), function(*given))
    found = module(reduction="sum")(*given)
    assert torch.equal(found, function(*given, reduction="sum"))


def test_a_module_has_options_and_no_state() -> None:
    module = CCLoss(engine="bethe", reduction="none", correction=False)
    assert repr(module) == "CCLoss(engine='bethe', reduction='none', correction=False)"
    assert not module.state_dict()
    expected = cc_loss(LOGITS, BAGS, "bethe", reduction="none", correction=False)
    for same in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(same(LOGITS, BAGS), expected)
    assert module(LOGITS, BAGS, reduction="sum") == pytest.approx(expected.sum().item())


def test_stored_probabilities_are_given_at_each_call() -> None:
    module = RCLoss(instance_loss="squared_error")
    for stored in (STORED, LOGITS):
        expected = rc_loss(LOGITS, BAGS, stored, instance_loss="squared_error")
        assert torch.equal(module(LOGITS, BAGS, stored), expected)
        assert torch.equal(module(LOGITS, bags=BAGS, stored_log_probs=stored), expected)


def test_modules_take_groupings() -> None:
    groupings = Groupings({"ward": (BAGS.bag_of_row, BAGS)})
    assert torch.equal(CCLoss(joint=False)(LOGITS, groupings), CCLoss()(LOGITS, BAGS))


@pytest.mark.parametrize(
    ("name", "option", "problem"),
    [
        ("dllp_loss", "engine", "DLLPLoss has no option 'engine'; it takes reduction"),
        ("rc_loss", "bags", "RCLoss has no option 'bags'; it takes engine, instance_loss, .*those"),
    ],
)
def test_options_that_there_are_not_are_refused(name: str, option: str, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        module_of(name)(**{option: 1})


def test_a_step_with_a_module_compiles_to_one_graph() -> None:
    module = CCLoss(reduction="sum")
    step = torch.compile(lambda logits: module(logits, BAGS), fullgraph=True, backend="eager")
    torch.testing.assert_close(step(LOGITS), cc_loss(LOGITS, BAGS, reduction="sum"))
