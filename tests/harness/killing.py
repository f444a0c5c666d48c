"""A process that starts campaigns and kills them: what is left must be as if nothing had happened.

The campaigns are forked, with stand-ins for workers: one import serves them all.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from draftproof.fuzz.campaign.drive import Campaign
from draftproof.fuzz.campaign.rundir import RunDir
from draftproof.fuzz.campaign.settings import CampaignLimits, RequestedSettings
from draftproof.harness.workers.messages import Answer, Order
from tests.harness.doubles import POSSIBLE, Plain, Pool, failing, passing


def main() -> None:
    """Arguments: the run directory, how many kills, how many scenarios."""
    folder, kills, examples = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    draw, done = random.Random(0), 0
    while done < kills:
        child = os.fork()
        if not child:
            end(folder, examples, slow=True)
        time.sleep(draw.uniform(0.05, 0.9))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        done += 1
    child = os.fork()
    if not child:
        end(folder, examples, slow=False)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    engine = [name for name in sys.modules if name.startswith(("draftproof.engine", "draftproof.kernels"))]
    print(json.dumps({"kills": done, "engine": engine}))
    sys.exit(code)


def end(folder: Path, examples: int, *, slow: bool) -> None:
    """Run a campaign, and end the process."""
    code = 1
    try:
        with RunDir(folder) as directory:
            settings = directory.begin(RequestedSettings(seed=3, drafts=("eagle",)), {})
            pool = Pool(lambda order: _answer(order, slow))
            limits = CampaignLimits(120, None, examples)
            Campaign(directory, settings, limits, pool, Plain(3), possible=POSSIBLE, width=2).go()
        engine = [name for name in sys.modules if name.startswith(("draftproof.engine", "draftproof.kernels"))]
        code = 3 if engine else 0
    finally:
        os._exit(code)


def _answer(order: Order, slow: bool) -> Answer:
    """A bug that needs a page size of at least 3, in a run that takes a while."""
    time.sleep(0.01 if slow else 0)
    return failing(order) if order.scenario.memory.page_size >= 3 else passing(order)
