"""Releases of an engine from a package index, each in an environment of its own: which of them are right?"""
