"""Runs of examples/lightning_loop.py on two processes; a folder keeps what they saw."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from bagwise import BagDataset, Bags

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from lightning_loop import BagClassifier

SIZES = [1, 4, 2, 5, 3, 2, 6, 1, 2, 4, 3, 5]
BAGS = Bags.from_labels(torch.arange(sum(SIZES)) % 3, SIZES)
EPOCHS = 3


def inputs() -> torch.Tensor:
    """Five features of each instance, and its row number."""
    features = torch.randn(BAGS.n_instances, 5, generator=torch.Generator().manual_seed(0))
    return torch.cat([features, torch.arange(float(len(features)))[:, None]], 1)


def network() -> nn.Linear:
    """The same weights in every process."""
    model = nn.Linear(5, 3)
    with torch.no_grad():
        model.weight.copy_(torch.arange(15.0).reshape(3, 5).sin())
        model.bias.zero_()
    return model


class Module(BagClassifier):
    """The example's, with what it saw: the last column of the inputs is the row's number."""

    def __init__(self, workers: int = 0) -> None:
        super().__init__(network(), BagDataset(inputs(), BAGS), max_instances=8, workers=workers)
        self.seen: list[dict[str, Any]] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, bags = batch
        loss = super().training_step((x[:, :5], bags), index)
        rows = x[:, 5].long().tolist()
        self.seen.append({"epoch": self.current_epoch, "rows": rows, "loss": loss.item()})
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.3)


class Keep(lightning.Callback):
    """Writes what a process saw."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        found = {"seen": pl_module.seen, "network": pl_module.network.state_dict()}
        torch.save(found, self.folder / f"found{trainer.global_rank}")


def trainer(folder: Path, epochs: int, **options: Any) -> lightning.Trainer:
    folder.mkdir(exist_ok=True)
    given = {"devices": 2, "strategy": "ddp_spawn", "use_distributed_sampler": False} | options
    return lightning.Trainer(
        **given,
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=[Keep(folder), ModelCheckpoint(folder, "{epoch}", save_top_k=-1)],
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    trainer(folder / "whole", EPOCHS).fit(Module(workers=1))
    checkpoint = str(folder / "whole" / "epoch=0.ckpt")
    trainer(folder / "resumed", EPOCHS).fit(Module(), ckpt_path=checkpoint)
    try:
        replacing = {"devices": 1, "strategy": "ddp", "use_distributed_sampler": True}
        trainer(folder / "replaced", 1, **replacing).fit(Module())
    except TypeError as error:
        (folder / "refused").write_text(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
