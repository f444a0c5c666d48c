"""A server that takes and returns token ids, over HTTP, as a subject."""

from draftproof.subjects.openai.subject import OpenaiSubject

__all__ = ["OpenaiSubject"]
