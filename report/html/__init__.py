"""A campaign's run directory as one HTML file that needs nothing else."""
