"""Known bugs as changes of the sources, and whether they are detected: catalogue, matrix, mutation score."""
