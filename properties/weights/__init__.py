"""Weights that engine and reference both read: functions of a seed and of sizes."""
