"""A fitted model of a table, what its fit found, and its folder."""
