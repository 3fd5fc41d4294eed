"""How methods are called and coloured, the same in every table and figure."""

from __future__ import annotations

METHOD_NAMES = {
    "supervised": "Supervised",
    "rc": "RC",
    "rc_approx": "RC_Approx",
    "cc": "CC",
    "cc_approx": "CC_Approx",
    "dllp": "DLLP",
    "llpfc": "LLPFC",
    "ot": "OT",
    "pll": "PLL",
}

# Proposed methods in strong colours, baselines in others; told apart in print by line style.
METHOD_COLORS = {
    "supervised": "#555555",
    "rc": "#0b5fa5",
    "rc_approx": "#5aa9e6",
    "cc": "#b5179e",
    "cc_approx": "#e58bd5",
    "dllp": "#2a9d3a",
    "llpfc": "#e07a00",
    "ot": "#8a6d00",
    "pll": "#8d99ae",
}
METHOD_STYLES = {
    "supervised": ":",
    "rc": "-",
    "rc_approx": "--",
    "cc": "-",
    "cc_approx": "--",
    "dllp": "-.",
    "llpfc": "-.",
    "ot": "-.",
    "pll": ":",
}
