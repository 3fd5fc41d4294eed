"""How well a model fits bags, without the label of any row."""
