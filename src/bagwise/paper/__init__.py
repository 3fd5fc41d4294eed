"""The paper's protocol: runs, sweeps, tables and figures."""

from bagwise.extras import require

require("torch", "torch")
