"""Is acceptance what it should be? (docs/semantics/audits.md, S-AUDIT)."""
