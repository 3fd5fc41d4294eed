"""What is known of the bags: label files, and columns with labels of rows."""
