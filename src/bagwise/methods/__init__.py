"""The methods, found by name.

The paper's: supervised, rc, rc_approx, cc, cc_approx, dllp, llpfc, ot, pll. Later ones: two_views,
pvc, mixbag, pll_cc, cc_then_rc, cc_approx_then_rc_approx.
"""

from bagwise.methods.base import METHODS, Batch, Method, make_method, register, takes
from bagwise.methods.cc_then_rc import CCApproxThenRCApprox, CCThenRC
from bagwise.methods.direct import CC, DLLP, PLLCC, PVC, CCApprox, Supervised
from bagwise.methods.llpfc import LLPFC
from bagwise.methods.mixbag import MixBag
from bagwise.methods.stored_probabilities import OT, PLL, RC, RCApprox
from bagwise.methods.views import TwoViews

__all__ = [
    "CC",
    "DLLP",
    "LLPFC",
    "METHODS",
    "OT",
    "PAPER_METHODS",
    "PLL",
    "PLLCC",
    "PVC",
    "RC",
    "Batch",
    "CCApprox",
    "CCApproxThenRCApprox",
    "CCThenRC",
    "Method",
    "MixBag",
    "RCApprox",
    "Supervised",
    "TwoViews",
    "make_method",
    "register",
    "takes",
]

PAPER_METHODS: dict[str, type[Method]] = {
    "supervised": Supervised,
    "rc": RC,
    "rc_approx": RCApprox,
    "cc": CC,
    "cc_approx": CCApprox,
    "dllp": DLLP,
    "llpfc": LLPFC,
    "ot": OT,
    "pll": PLL,
}
"""Those of the paper, in its order."""

_LATER: dict[str, type[Method]] = {
    "two_views": TwoViews,
    "pvc": PVC,
    "mixbag": MixBag,
    "pll_cc": PLLCC,
    "cc_then_rc": CCThenRC,
    "cc_approx_then_rc_approx": CCApproxThenRCApprox,
}

for _name, _cls in {**PAPER_METHODS, **_LATER}.items():
    METHODS[_name] = _cls
