"""Columns of a table as numbers for a model."""
