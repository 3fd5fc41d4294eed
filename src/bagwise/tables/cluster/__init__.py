"""Tables whose rows are spread over the workers of a Ray cluster, and stay there."""
