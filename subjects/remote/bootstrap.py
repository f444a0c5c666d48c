"""Runs in the other Python, as a file: makes Draftproof's sources importable there, and nothing else of ours.

Its argument is JSON: package -> folder of the sources. Written for any Python, so that an old one is told as such; the
first frame that it writes is JSON, too: {"python", "lacks", "why"}.
"""

import importlib
import json
import os
import struct
import sys

LEAST_PYTHON = (3, 10)
_NEEDED = ("numpy", "msgspec")


class SourcesFinder(object):
    """Finds the packages of Draftproof in their folders; what lies in these is found as ever."""

    def __init__(self, folders):
        self.folders = folders

    def find_spec(self, name, path=None, target=None):
        """Return the spec of a package of ours; None of anything else."""
        if name not in self.folders:
            return None
        from importlib.util import spec_from_file_location

        folder = self.folders[name]
        return spec_from_file_location(name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])


def install():
    """Put the finder in front, and take the folder of this file off the path."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if path and os.path.abspath(path) != here]
    sys.meta_path.insert(0, SourcesFinder(json.loads(sys.argv[1])))


def streams():
    """Return what orders come from and answers go to; a subject that reads or prints meets neither."""
    orders, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return orders, answers


def say(answers, lacks="", why=""):
    """Write the first frame."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    data = json.dumps({"python": version, "lacks": lacks, "why": why}).encode("utf-8")
    os.write(answers, struct.pack("<Q", len(data)) + data)


def main():
    """Say what is missing, or serve until orders end."""
    orders, answers = streams()
    if sys.version_info < LEAST_PYTHON:
        say(answers, "python")
        return
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except Exception as error:
            say(answers, name, type(error).__name__ + ": " + str(error))
            return
    from draftproof.subjects.remote.serve import serve

    say(answers)
    serve(orders, answers)


if __name__ in ("__main__", "__mp_main__"):  # what it spawns must find the sources, too
    install()
if __name__ == "__main__":
    main()
