"""SGLang 0.5.9 to 0.5.12.post1: the module of the multi-layer v1 worker cannot be imported, before Python 3.14.

python sglang_v1_import.py UNPACKED_WHEEL    # NameError: name 'ModelRunner' is not defined
"""

import builtins
import sys
from pathlib import Path
from unittest.mock import MagicMock

imported = builtins.__import__
# Whatever the module imports of SGLang is there: a mock.
builtins.__import__ = lambda name, *rest: MagicMock() if name.startswith("sgl") else imported(name, *rest)
file = Path(sys.argv[1], "sglang/srt/speculative/multi_layer_eagle_worker.py")
exec(compile(file.read_text(), str(file), "exec"), {"__name__": "worker"})
