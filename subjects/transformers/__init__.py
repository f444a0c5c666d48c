"""Hugging Face transformers as a subject: greedy assisted generation, by whatever proposes."""

from draftproof.subjects.transformers.subject import TransformersSubject

__all__ = ["TransformersSubject"]
