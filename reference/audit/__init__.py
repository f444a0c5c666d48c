"""What a right draft gets accepted, and what one with a known mistake would (docs/semantics/audits.md, S-AUDIT)."""
