"""What a fitted model is used for: predict, label, evaluate, estimate, explain."""
