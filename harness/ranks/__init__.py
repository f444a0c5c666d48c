"""Ranks of a subject: processes in lockstep, and what becomes of them."""
