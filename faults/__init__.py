"""Known bugs as patches, and whether they are detected: catalogue, matrix, mutation score."""
