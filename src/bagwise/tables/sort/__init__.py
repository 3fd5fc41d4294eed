"""Rows sorted by bag, in memory or on the disk."""
