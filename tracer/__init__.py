"""Checkpoints with hand-made weights, whose greedy output is an exact integer function of tokens and positions."""
