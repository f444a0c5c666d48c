"""The table of limits says what a file of a scenario may have, as reading one does."""

import json
import re

import pytest

from draftproof.properties.formats.case import decode, encode
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.values.scenario import Scenario
from draftproof.report.scenario_tables import limits
from tests.properties.evidence import STATIC

ROWS = dict(re.findall(r"^\| `(\w+\.\w+)` \| (.*?) \| .* \|$", limits(), re.MULTILINE))
RANGE = re.compile(r"integer, (-?\d+) to (\d+)")
OF_INTEGERS = [name for name, kind in ROWS.items() if re.match("Memory|Schedule", name) and RANGE.fullmatch(kind)]


def test_every_field_is_listed() -> None:
    assert {f"Scenario.{name}" for name in Scenario.__struct_fields__} <= ROWS.keys()
    assert {"Memory.page_size", "Mtp.layers", "Image.width", "Ranks.tensor", "Tree.topk"} <= ROWS.keys()
    assert ROWS["Sampling.top_p"] == "number above 0, at most 1"
    assert ROWS["Request.stop_sequences"] == "list: list of 1 to 64: integer, at least 0"
    assert ROWS["Grammar.pattern"] == "text of 1 to 64 characters"
    assert len(OF_INTEGERS) > 10


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_what_is_beyond_a_limit_is_refused(name: str) -> None:
    struct, field = name.split(".")
    found = RANGE.fullmatch(ROWS[name])
    assert found
    least, most = map(int, found.groups())
    for value, is_allowed in ((least, True), (least - 1, False), (most, True), (most + 1, False)):
        fields = json.loads(encode(STATIC))
        fields[struct.lower()][field] = value
        if is_allowed:
            decode(json.dumps(fields), Scenario)
        else:
            with pytest.raises(InvalidScenarioError, match=field):
                decode(json.dumps(fields), Scenario)
