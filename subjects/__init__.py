"""Adapters: subjects of engines that other people wrote, and the transport to those in another Python."""
