"""What values and formats are made with: it knows nothing of scenarios."""
