"""The methods, found by name: supervised, rc, rc_approx, cc, cc_approx, dllp, llpfc, ot, pll."""

from bagwise.methods.base import METHODS, Batch, Method, make_method, register, takes
from bagwise.methods.direct import CC, DLLP, CCApprox, Supervised
from bagwise.methods.llpfc import LLPFC
from bagwise.methods.stored import OT, PLL, RC, RCApprox

__all__ = [
    "CC",
    "DLLP",
    "LLPFC",
    "METHODS",
    "OT",
    "PAPER_METHODS",
    "PLL",
    "RC",
    "Batch",
    "CCApprox",
    "Method",
    "RCApprox",
    "Supervised",
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

for _name, _cls in PAPER_METHODS.items():
    METHODS[_name] = _cls
