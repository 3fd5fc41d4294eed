"""Files that appear whole or not at all, tensors without pickle, and the folder of a model."""
