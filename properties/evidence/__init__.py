"""What contracts look at: both traces of a scenario side by side."""
