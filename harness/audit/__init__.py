"""Is acceptance what it should be? (docs/semantics.md, S-AUDIT)."""
