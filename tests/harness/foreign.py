"""An engine as others build them: one request at a time, chunks, pages, a prefix cache and preemption of its own.

It decodes with the reference's target, so that all that it says of tokens is right, and shows what a host shows.
"""

from dataclasses import dataclass, field

from draftproof.properties.values.limits import Limits
from draftproof.properties.values.observed import BatchRow, Datum, Owner, PoolReport
from draftproof.properties.values.scenario import Request, Scenario, drafts_allowed, round_plan
from draftproof.properties.values.script import RequestScript, Script, forced
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.reference.build import build
from draftproof.reference.decode import RequestLimits, verify
from draftproof.reference.memo import Memo

CHANNELS = frozenset(
    {f"round.{name}" for name in ("rows", "table", "cached", "attempt", "drafts")}
    | {f"accept.{name}" for name in ("correct_len", "index", "bonus", "emitted")}
    | {f"total.{name}" for name in ("rounds", "drafts", "accepted", "accepted_at")}
    | {"commit.length", "propose.tokens", "pool.owners"}
)


@dataclass
class Foreign(Subject):
    """`chunk` tokens of a prompt run at a time; `ahead` pages are taken before they are reached.

    Before the rounds `preempted`, as (request, round), a request loses its pages and runs its tokens again, of which
    `lost` are left out. `cached` tokens of every prompt but the first are served from the pages of the first.
    """

    limits: Limits
    chunk: int = 4
    ahead: int = 0
    cached: int = 0
    preempted: frozenset[tuple[int, int]] = frozenset()
    lost: int = 0
    only: frozenset[str] = CHANNELS
    name: str = "foreign"

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return self.only

    def run(self, scenario: Scenario, script: Script) -> Trace:
        engine = _Engine(self, scenario)
        for number, (request, steered) in enumerate(zip(scenario.requests, script.requests, strict=True)):
            engine.serve(number, request, steered)
        engine.end()
        said = tuple(one for one in engine.said if one.channel in self.only)
        return Trace(self.name, self.only, said)


@dataclass
class _Engine:
    subject: Foreign
    scenario: Scenario
    said: list[Observation] = field(default_factory=list)
    counted: list[tuple[int, int]] = field(default_factory=list)
    first_table: list[int] = field(default_factory=list)
    step: int = 0

    def __post_init__(self) -> None:
        self.free = list(range(1, self.scenario.memory.pages + 1))
        self.table: list[int] = []
        self.target, self.draft = build(self.scenario, Memo())

    def say(self, channel: str, key: Key, value: Datum) -> None:
        self.said.append(Observation(channel, key, value))

    def grow(self, tokens: int) -> None:
        needed = -(-tokens // self.scenario.memory.page_size) + self.subject.ahead
        while len(self.table) < needed:
            self.table.append(self.free.pop(0))

    def release(self) -> None:
        self.free = sorted({*self.free, *self.table})
        self.table = []

    def tick(self, request: int, *, owns: bool) -> None:
        """End an engine step."""
        owners = tuple(sorted(Owner(page, request) for page in self.table if owns))
        free = self.scenario.memory.pages - len(owners)
        self.say("pool.owners", Key(-1, self.step), PoolReport(free, self.slots - bool(owners), owners))
        self.step += 1

    @property
    def slots(self) -> int:
        return self.scenario.memory.request_slots

    def prefill(self, request: int, number: int, count: int, cached: int, *, goes_on: bool = True) -> None:
        """Run the first `count` tokens, from `cached` on, in chunks of a round."""
        starts = range(cached, count, self.subject.chunk)
        for chunk, start in enumerate(starts):
            end = min(count, start + self.subject.chunk)
            self.grow(end)
            self.say("round.rows", Key(request, number, step=chunk), BatchRow(0, end - start, 0, 0, self.step))
            self.tick(request, owns=goes_on or end < count)

    def tell(self, request: int, number: int, attempt: int, length: int) -> None:
        self.say("round.attempt", Key(request, number), attempt)
        self.say("commit.length", Key(request, number), length)
        reached = -(-length // self.scenario.memory.page_size)
        for column, page in enumerate(self.table[: None if number else reached + self.subject.ahead]):
            self.say("round.table", Key(request, number, row=column), page)

    def serve(self, index: int, request: Request, steered: RequestScript) -> None:
        subject, prompt = self.subject, request.prompt
        limits = RequestLimits.of(request, self.scenario.memory.max_len, steered.stop)
        cached = subject.cached if index else 0
        self.table = self.first_table[: cached // self.scenario.memory.page_size]
        self.free = [page for page in self.free if page not in self.table]
        self.say("round.cached", Key(index, 0), cached)
        emitted = verify(self.target, prompt, ()).emitted
        self.prefill(index, 0, len(prompt), cached, goes_on=not limits.ended(emitted))
        self.tell(index, 0, 0, len(prompt))
        self.say("accept.emitted", Key(index, 0), emitted)
        self.first_table = self.first_table or list(self.table)
        number = attempt = 0
        while not limits.ended(emitted):
            number += 1
            again = (index, number) in subject.preempted
            attempt += again
            tokens = prompt + emitted
            left = request.budget - len(emitted)
            wanted = 0 if again else round_plan(request, number).num_drafts
            most = self.scenario.memory.max_len
            count = drafts_allowed(wanted, context=len(tokens) - 1, max_len=most, budget_left=left)
            own = self.draft.propose(tokens, self.target.forward(tokens), count).tokens
            given = forced(steered, number, len(emitted), count)
            drafts = own if given is None else given[:count]
            verified = verify(self.target, tokens, drafts)
            new = limits.cut(emitted, verified.emitted)
            emitted += new
            ended = limits.ended(emitted)
            if again:
                self.release()
                self.say("round.cached", Key(index, number), 0)
                self.prefill(index, number, len(tokens) - subject.lost, 0, goes_on=not ended)
            else:
                self.grow(len(tokens) + len(drafts))
                self.say("round.rows", Key(index, number, step=0), BatchRow(0, len(drafts), 1, 0, self.step))
                self.tick(index, owns=not ended)
            self.tell(index, number, attempt, len(prompt) + len(emitted) - 1)
            self.say("propose.tokens", Key(index, number), own)
            self.say("round.drafts", Key(index, number), drafts)
            self.say("accept.correct_len", Key(index, number), verified.correct_len)
            self.say("accept.index", Key(index, number), tuple(range(verified.correct_len + 1)))
            self.say("accept.bonus", Key(index, number), verified.emitted[-1])
            self.say("accept.emitted", Key(index, number), new)
            self.counted.append((len(drafts), verified.correct_len))
        self.release()

    def end(self) -> None:
        self.say("pool.owners", Key(-1, self.step), PoolReport(self.scenario.memory.pages, self.slots, ()))
        steps = range(self.scenario.steps)
        self.say("total.rounds", Key(-1, 0), sum(drafts > 0 for drafts, _ in self.counted))
        self.say("total.drafts", Key(-1, 0), sum(drafts for drafts, _ in self.counted))
        self.say("total.accepted", Key(-1, 0), sum(right for _, right in self.counted))
        at = tuple(sum(right > place for _, right in self.counted) for place in steps)
        self.say("total.accepted_at", Key(-1, 0), at)
