"""The file of a model's folder that says how sure the coefficients are."""

from __future__ import annotations

from pathlib import Path

from bagwise.checks import number, whole
from bagwise.errors import DamagedError, InputError
from bagwise.storage.array_files import (
    Arrays,
    compare,
    load_arrays,
    require_finite,
    shape_of,
    verify,
)

EFFECTS = {"effects": "means", "spreads": "spreads", "centres": "centres"}  # and what they are


def read_intervals(path: Path, n_features: int, n_classes: int) -> Arrays:
    """What a model's folder says; empty if it says nothing, a ValueError if it is damaged."""
    if not path.exists():
        return {}
    arrays, _ = load_arrays(path)
    d, C = n_features + 1, n_classes
    wanted = {
        "weights": shape_of("float64", d - 1, C),
        "intercept": shape_of("float64", C),
        "covariance": shape_of("float64", d, C - 1, d, C - 1),
        "absent": shape_of("uint8", C),
        "n_bags": shape_of("int64"),
    }
    later = {"posterior": wanted["covariance"], "ridge": shape_of("float64")}
    wanted |= {name: shape for name, shape in later.items() if name in arrays}
    try:
        compare({name: x for name, x in arrays.items() if name not in EFFECTS}, wanted)
        B = int(arrays["n_bags"])
        whole(2)(B, "n_bags")
        number(0)(float(arrays.get("ridge", 0.0)), "ridge")
        if arrays.keys() & EFFECTS.keys():
            sizes = zip(EFFECTS, ((B, C), (B,), (B, d - 1)), strict=True)
            of_bags = {name: shape_of("float64", *size) for name, size in sizes}
            compare({name: x for name, x in arrays.items() if name in EFFECTS}, of_bags)
            if (arrays["spreads"] < 0).any():
                raise InputError("'spreads' has numbers below 0")
        require_finite(arrays)
        verify(path, arrays)
    except InputError as error:
        raise DamagedError(f"{path} is damaged: {error}; fit the model again.") from error
    return arrays
