"""A subject in another Python: what runs there needs numpy and msgspec, and of Draftproof what is sent."""
