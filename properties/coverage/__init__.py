"""What happened in a run, as facts (fact.py), and their views: counts, shares, holes, effects, and what cannot be."""
