"""Hugging Face's Trainer on texts whose labels are only counted: topics of 100 magazines.

python examples/hugging_face.py

An item of a `BagDataset` is a bag, so the Trainer, which draws items, keeps bags whole; its batch
size counts bags. It chooses the best epoch by held-out bags: no label of a sentence is ever needed.
The sentences are generated and BERT is tiny, so that nothing is downloaded.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)
from transformers.utils import logging

from bagwise import BagDataset, Bags, cc_loss, collate_bags

TOPICS, WORDS, LENGTH, RANDOM = 3, 31, 12, torch.Generator().manual_seed(0)


def sentences(labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """Numbers of words, padded to one length with 0; half of the words belong to the topic."""
    words = torch.randint(1, WORDS, (len(labels), LENGTH), generator=RANDOM)
    of_topic = 1 + TOPICS * torch.randint((WORDS - 1) // TOPICS, words.shape, generator=RANDOM)
    is_typical = torch.rand(words.shape, generator=RANDOM) < 1 / 2
    words = torch.where(is_typical, of_topic + labels[:, None], words)
    lengths = torch.randint(6, LENGTH + 1, (len(labels), 1), generator=RANDOM)
    mask = (torch.arange(LENGTH) < lengths).long()
    return {"input_ids": words * mask, "attention_mask": mask}


def magazines(n: int) -> BagDataset:
    """Bags of 5 to 30 sentences; each magazine has its own mixture of topics."""
    sizes = torch.randint(5, 31, (n,), generator=RANDOM)
    mixtures = torch.rand(n, TOPICS, generator=RANDOM) ** 3
    labels = torch.multinomial(
        mixtures.repeat_interleave(sizes, 0), 1, replacement=True, generator=RANDOM
    ).flatten()
    return BagDataset(sentences(labels), Bags.from_labels(labels, sizes, n_classes=TOPICS))


class BagTrainer(Trainer):
    """A Trainer whose loss is that of bags, the mean over all sentences of an optimizer's step."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.model_accepts_loss_kwargs = True  # else it divides by the batches of a step

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """The batches of a step, and how many sentences they have together."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        return batches, sum(batch["bags"].n_instances for batch in batches)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The model takes all but the bags, which are the loss's."""
        bags = inputs["bags"]
        outputs = model(**{name: value for name, value in inputs.items() if name != "bags"})
        loss = cc_loss(outputs.logits, bags, reduction="sum")
        loss = loss / (num_items_in_batch if model.training else bags.n_instances)
        return (loss, outputs) if return_outputs else loss


def arguments(folder: str, **more: Any) -> TrainingArguments:
    """What matters for bags, and the rest of a short run."""
    needed = {
        "remove_unused_columns": False,  # else the Trainer drops the counts
        "label_names": ["bags"],  # else it evaluates without a loss
        "per_device_train_batch_size": 4,  # bags
        "per_device_eval_batch_size": 4,
        "gradient_accumulation_steps": 2,
    }
    chosen = {
        "num_train_epochs": 16,
        "learning_rate": 2e-3,
        "warmup_steps": 20,
        "weight_decay": 0.1,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "load_best_model_at_end": True,  # by eval_loss, that of held-out bags
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "seed": 0,
    }
    return TrainingArguments(folder, **needed | chosen | more)


def model() -> BertForSequenceClassification:
    """A BERT with two small layers, without weights to download."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=WORDS, num_labels=TOPICS, intermediate_size=64, **sizes)
    return BertForSequenceClassification(config)


def main() -> None:
    """Train, and say how many sentences of other magazines get the right topic."""
    logging.disable_progress_bar()
    training, held_out = magazines(100), magazines(25)
    labels = torch.randint(TOPICS, (600,), generator=RANDOM)
    tests = sentences(labels)
    with tempfile.TemporaryDirectory() as folder:
        trainer = BagTrainer(
            model(),
            arguments(folder),
            data_collator=collate_bags,
            train_dataset=training,
            eval_dataset=held_out,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    print(f"trained on {training.bags}")
    for row in trainer.state.log_history:
        if "eval_loss" in row and row["epoch"] % 4 == 0:
            print(f"epoch {row['epoch']:2.0f}: loss of held-out bags {row['eval_loss']:.3f}")
    best = trainer.model.eval()
    with torch.no_grad():
        right = best(**tests).logits.argmax(-1) == labels
    print(f"best loss of held-out bags: {trainer.state.best_metric:.3f}")
    print(f"accuracy on 600 sentences: {right.float().mean():.3f}")


if __name__ == "__main__":
    main()
