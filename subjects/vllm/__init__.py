"""vLLM as a subject: released wheels, driven in this process step by step; see docs/vllm.md."""

from __future__ import annotations

from draftproof.subjects.vllm.subject import VllmSubject

__all__ = ["VllmSubject"]
