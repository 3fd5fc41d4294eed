"""Rows and label counts together: which bag each row is in."""
