"""The paper's protocol: runs, sweeps, tables and figures."""
