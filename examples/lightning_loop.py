"""Lightning on two processes: batches of whole bags, the best epoch by held-out bags.

python examples/lightning_loop.py

`BagBatchSampler` divides the batches among the processes itself, so the Trainer gets
`use_distributed_sampler=False`. Each process has its own batch in a step; the loss is the mean over
the instances of all of them.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

from bagwise import BagBatchSampler, BagDataset, Bags, cc_loss, collate_bags


class BagClassifier(lightning.LightningModule):
    """Any network, trained on bags.

    Args:
        workers: processes that fetch the bags of a batch.
    """

    def __init__(
        self, network: nn.Module, dataset: BagDataset, max_instances: int, workers: int = 0
    ) -> None:
        super().__init__()
        self.network = network
        self.dataset = dataset
        self.workers = workers
        # In the constructor: the process group comes later, and the sampler asks it then.
        self.sampler = BagBatchSampler(dataset.bags, max_instances, seed=3)

    def train_dataloader(self) -> Any:
        """Batches of whole bags, another order each epoch."""
        return DataLoader(
            self.dataset,
            batch_sampler=self.sampler,
            collate_fn=collate_bags,
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
        )

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        """DDP averages the gradients of processes, so each says how much its batch counts."""
        inputs, bags = batch
        total = torch.tensor(float(bags.n_instances), device=self.device)
        if self.trainer.world_size > 1:
            torch.distributed.all_reduce(total)
        loss = cc_loss(self.network(inputs), bags, reduction="sum")
        return loss * self.trainer.world_size / total

    def validation_step(self, batch: Any, _: int) -> None:
        """The loss of held-out bags, which needs no label of an instance."""
        inputs, bags = batch
        loss = cc_loss(self.network(inputs), bags)
        self.log("val_bag_loss", loss, batch_size=bags.n_instances, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=3e-3)


class Shown(lightning.Callback):
    """Prints the loss of held-out bags every fifth epoch."""

    def on_validation_epoch_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        """On the first process alone."""
        epoch, loss = trainer.current_epoch, trainer.callback_metrics["val_bag_loss"]
        if trainer.is_global_zero and epoch % 5 == 4:
            print(f"epoch {epoch + 1:2}: loss of held-out bags {loss:.3f}")


def main(epochs: int = 25) -> None:
    """Train on two processes; the first one says what came of it."""
    warnings.filterwarnings("ignore", ".*does not have many workers")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    images, targets = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    inputs, labels = torch.tensor(images).float()[order] / 16, torch.tensor(targets)[order]
    bags = Bags.from_labels(labels[:1500], [15] * 100, n_classes=10)
    training, held_out = bags.select(range(80)), bags.select(range(80, 100))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    module = BagClassifier(network, BagDataset(inputs[:1200], training), max_instances=64)
    validation = DataLoader(
        BagDataset(inputs[1200:1500], held_out),
        batch_sampler=BagBatchSampler(held_out, 150, shuffle=False),
        collate_fn=collate_bags,
    )
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="val_bag_loss")
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            use_distributed_sampler=False,
            max_epochs=epochs,
            callbacks=[best, Shown()],
            enable_progress_bar=False,
            enable_model_summary=False,
            logger=False,
        )
        trainer.fit(module, val_dataloaders=validation)
        if not trainer.is_global_zero:
            return
        state = torch.load(best.best_model_path, weights_only=True)["state_dict"]
        module.load_state_dict(state)
        with torch.no_grad():
            right = module.network(inputs[1500:]).argmax(-1) == labels[1500:]
        print(f"processes: {trainer.world_size}, steps: {trainer.global_step}")
        print(f"best loss of held-out bags: {best.best_model_score:.3f}")
        print(f"accuracy on {len(right)} digits: {right.float().mean():.3f}")


if __name__ == "__main__":
    main()
