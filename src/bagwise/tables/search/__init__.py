"""Candidates, and which one is taken."""
