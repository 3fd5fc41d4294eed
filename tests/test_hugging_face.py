"""Bags under Hugging Face's Trainer, by the classes of examples/hugging_face.py."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from bagwise import BagBatchSampler, Bags, InputError, cc_loss, collate_bags

pytestmark = [
    pytest.mark.slow,  # the import alone takes seconds
    pytest.mark.skipif(
        importlib.util.find_spec("transformers") is None
        or importlib.util.find_spec("accelerate") is None,
        reason="transformers or accelerate is not installed",
    ),
]


@pytest.fixture(scope="module")
def recipe() -> Any:
    sys.path.append(str(Path(__file__).parents[1] / "examples"))
    import hugging_face

    return hugging_face


@pytest.fixture
def trainer(recipe: Any, tmp_path: Path) -> Any:
    """Makes trainers without dropout; each keeps the batches that it was given."""

    class Watched(recipe.BagTrainer):
        seen: list[dict[str, Any]]

        def compute_loss(self, model: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
            if model.training:
                self.seen.append(dict(inputs))
            return super().compute_loss(model, inputs, *rest, **more)

    def make(**options: Any) -> Any:
        model = recipe.model()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        kind = options.pop("kind", Watched)
        common = {"save_strategy": "no", "load_best_model_at_end": False, "warmup_steps": 0}
        metrics = options.pop("compute_metrics", None)
        made = kind(
            model,
            recipe.arguments(str(tmp_path), **common | options),
            compute_metrics=metrics,
            data_collator=collate_bags,
            train_dataset=recipe.magazines(19),
            eval_dataset=recipe.magazines(6),
        )
        made.seen = []
        made.remove_callback(recipe.PrinterCallback)
        return made

    make.kind = Watched  # type: ignore[attr-defined]
    return make


def test_bags_stay_whole_and_each_comes_once_an_epoch(trainer: Any) -> None:
    made = trainer(num_train_epochs=2)
    made.train()
    assert [len(batch["bags"]) for batch in made.seen] == [4, 4, 4, 4, 3] * 2
    expected = made.train_dataset.bags
    for epoch in (made.seen[:5], made.seen[5:]):
        bags = Bags.join([batch["bags"] for batch in epoch])
        assert sorted(map(tuple, bags.counts)) == sorted(map(tuple, expected.counts))
        for batch in epoch:
            assert len(batch["input_ids"]) == batch["bags"].n_instances


def test_a_step_is_the_mean_over_all_instances_of_its_batches(trainer: Any) -> None:
    made = trainer(
        optim="sgd", learning_rate=0.5, weight_decay=0.0, max_steps=1, max_grad_norm=0.0,
        lr_scheduler_type="constant", gradient_accumulation_steps=3,
    )  # fmt: skip
    model = copy.deepcopy(made.model)
    made.train()
    assert len(made.seen) == 3
    bags = Bags.join([batch["bags"] for batch in made.seen])
    names = ("input_ids", "attention_mask")
    inputs = {name: torch.cat([batch[name] for batch in made.seen]) for name in names}
    cc_loss(model(**inputs).logits, bags).backward()
    for weight, stepped in zip(model.parameters(), made.model.parameters(), strict=True):
        if weight.grad is not None:
            expected = weight.detach() - 0.5 * weight.grad
            torch.testing.assert_close(stepped.detach(), expected, rtol=1e-4, atol=1e-6)


def test_the_evaluation_is_the_loss_of_held_out_bags(trainer: Any) -> None:
    made = trainer(per_device_eval_batch_size=6)
    data = made.eval_dataset
    made.model.eval()
    with torch.no_grad():
        expected = cc_loss(made.model(**data.inputs).logits, data.bags).item()
    assert made.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)


def test_without_its_arguments_the_trainer_drops_counts_or_has_no_loss(trainer: Any) -> None:
    with pytest.raises(InputError, match=r"Trainer drops them, unless .*remove_unused_columns"):
        trainer(remove_unused_columns=True).train()
    assert "eval_loss" not in trainer(label_names=None).evaluate()
    with pytest.raises(TypeError, match="Bags"):
        trainer(compute_metrics=lambda found: {}).evaluate()


def test_batches_up_to_a_number_of_instances_take_one_override(trainer: Any) -> None:
    class Limited(trainer.kind):
        def get_train_dataloader(self) -> Any:
            sampler = BagBatchSampler(self.train_dataset.bags, max_instances=60, seed=0)
            loader = DataLoader(
                self.train_dataset, batch_sampler=sampler, collate_fn=self.data_collator
            )
            return self.accelerator.prepare(loader)

    made = trainer(num_train_epochs=2, gradient_accumulation_steps=1, kind=Limited)
    made.train()
    sampler = BagBatchSampler(made.train_dataset.bags, max_instances=60, seed=0)
    expected = [made.train_dataset.bags.select(batch) for _ in range(2) for batch in sampler]
    assert [batch["bags"] for batch in made.seen] == expected
