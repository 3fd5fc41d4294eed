"""What is known of the labels in bags, in the forms people have it."""
