"""Modules of an unpacked wheel, with stubs for the packages that this machine lacks."""
