"""The errors of Draftproof, as others catch and raise them."""

from draftproof.properties.lib.errors import CheckpointError as CheckpointError
from draftproof.properties.lib.errors import ConditionError as ConditionError
from draftproof.properties.lib.errors import DraftproofError as DraftproofError
