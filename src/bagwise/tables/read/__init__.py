"""Rows from files: formats, dialects, types, values."""
