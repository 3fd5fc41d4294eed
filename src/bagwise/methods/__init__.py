"""The methods, found by name: rc, rc_approx, cc, cc_approx, dllp, llpfc, ot, pll, supervised."""

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
