"""Reports of the same catalogue from a CPU and from a GPU, side by side."""

from __future__ import annotations

import msgspec

from draftproof.faults.baseline import Baseline
from draftproof.faults.matrix import UNTRIED, FaultReport, FaultResult, Totals, totals
from draftproof.properties.values.base import Value


class Lanes(Value, frozen=True, kw_only=True):
    """The same catalogue on the CPU (host graphs, eager engine, interpreted kernels) and on a GPU, if it ran there."""

    cpu: FaultReport
    gpu: FaultReport | None = None

    @property
    def reports(self) -> dict[str, FaultReport]:
        """Name of the lane -> its report."""
        return {"CPU": self.cpu, **({"GPU": self.gpu} if self.gpu else {})}

    @property
    def ids(self) -> tuple[str, ...]:
        """Every fault of any lane, sorted."""
        return tuple(sorted({fault.id for report in self.reports.values() for fault in report.faults}))

    @property
    def once(self) -> Totals:
        """Sums in which every fault counts once: noticed if it is in each lane that tried it."""
        return totals([self._one(name) for name in self.ids])

    def _one(self, name: str) -> FaultResult:
        """Return a fault at its worst lane, with what the usual tests saw of it anywhere."""
        found = list(self.of(name).values())
        tried = [one for one in found if one.outcome not in UNTRIED] or found
        least = next((one for one in tried if not one.noticed), tried[0])
        return msgspec.structs.replace(least, baseline=self.baseline(name))

    def baseline(self, name: str) -> Baseline | None:
        """Return what the usual tests saw of a fault, in the first lane where they ran."""
        return next((one.baseline for one in self.of(name).values() if one.baseline), None)

    def of(self, name: str) -> dict[str, FaultResult]:
        """Lane -> the row of a fault, where there is one."""
        found = {lane: {one.id: one for one in report.faults} for lane, report in self.reports.items()}
        return {lane: rows[name] for lane, rows in found.items() if name in rows}
