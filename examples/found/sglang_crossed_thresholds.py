"""SGLang 0.5.13: a policy whose threshold down lies above the one up never comes down; later releases do.

python sglang_crossed_thresholds.py UNPACKED_0_5_13 UNPACKED_0_5_14
"""

import random
import runpy
import sys
from unittest.mock import MagicMock

FILE = "sglang/srt/speculative/adaptive_spec_params.py"
sys.modules["sglang.srt.utils"] = MagicMock()  # which the file imports
POLICIES = [runpy.run_path(f"{wheel}/{FILE}")["AdaptiveStepSlot"] for wheel in sys.argv[1:]]


def chosen(average, start, steps, down, up):
    for policy in POLICIES:
        one = policy(start, {"candidate_steps": steps, "down_hysteresis": down, "up_hysteresis": up})
        one.ema_accept_len = average
        one._recompute_params()
        yield one.current_steps


print("of 3 steps, average 0.8:", *chosen(0.8, 3, [1, 3], 0.4, -0.4))
draw, differ = random.Random(0), {True: 0, False: 0}
for _ in range(100_000):
    steps, down, up = sorted(draw.sample(range(1, 9), 3)), draw.uniform(-1, 1), draw.uniform(-1, 1)
    older, later = chosen(draw.uniform(0, 8), draw.choice(steps), steps, down, up)
    differ[down > up] += older != later
print("differ, of 100000 draws:", differ[True], "with the thresholds crossed,", differ[False], "others")
