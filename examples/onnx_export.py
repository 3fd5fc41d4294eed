"""A classifier learned from counts, exported to ONNX: it then needs neither Bagwise nor PyTorch.

python examples/onnx_export.py --out digits.onnx

The exported model maps raw rows, any number of them, to probabilities: standardization and the
temperature that held-out bags asked for are part of it.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from sklearn.datasets import load_digits
from torch import nn

from bagwise import LLPClassifier


def export(classifier: LLPClassifier, X: np.ndarray, path: Path) -> None:
    """Write a fitted classifier; X are rows as it takes them, of which the shape is needed."""
    model = nn.Sequential(copy.deepcopy(classifier.model_), nn.Softmax(-1)).cpu().eval()
    example = torch.tensor(X[:2], dtype=torch.float32)
    torch.onnx.export(
        model,
        (example,),
        path,
        input_names=["rows"],
        output_names=["probabilities"],
        dynamic_shapes=({0: torch.export.Dim("rows")},),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def main() -> None:
    """Learn digits from bags, export, and compare the two models' answers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32)
    bags = np.random.default_rng(0).permutation(1400) // 14
    counts = {bag: np.bincount(y[:1400][bags == bag], minlength=10) for bag in range(100)}
    classifier = LLPClassifier(epochs=20, random_state=0).fit(X[:1400], bags, counts)
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.out or Path(folder) / "digits.onnx"
        export(classifier, X, path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        size = path.stat().st_size
    print(f"exported model: {size / 1000:,.0f} kB")
    for names in (session.get_inputs(), session.get_outputs()):
        print(f"{names[0].name}: {names[0].type}, shape {names[0].shape}")
    for n in (1, 7, len(X) - 1400):
        rows = X[1400 : 1400 + n]
        (found,) = session.run(None, {"rows": rows})
        difference = np.abs(found - classifier.predict_proba(rows)).max()
        print(f"{n:3} rows: largest difference of probabilities {difference:.0e}")
    right = classifier.classes_[found.argmax(1)] == y[1400:]
    print(f"accuracy of the exported model: {right.mean():.3f}")


if __name__ == "__main__":
    main()
