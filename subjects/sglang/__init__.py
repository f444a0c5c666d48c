"""SGLang: functions of a released wheel, each part a subject that runs them in our engine."""

from draftproof.subjects.sglang.commit import StateCommit as StateCommit
from draftproof.subjects.sglang.config import DraftConfig as DraftConfig
from draftproof.subjects.sglang.dflash import BlockAcceptance as BlockAcceptance
from draftproof.subjects.sglang.draft_decode import DraftDecode as DraftDecode
from draftproof.subjects.sglang.eagle_extend import EagleExtend as EagleExtend
from draftproof.subjects.sglang.mtp import ChainExtend as ChainExtend
from draftproof.subjects.sglang.policy import AdaptivePolicy as AdaptivePolicy
from draftproof.subjects.sglang.pools import PoolSteps as PoolSteps
