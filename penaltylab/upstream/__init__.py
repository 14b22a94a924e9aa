"""Released sglang code, unmodified, from its own wheel, in our loop. Nothing of sglang is part of this package."""

from penaltylab.upstream.comparison import Row as Row
from penaltylab.upstream.comparison import compare as compare
from penaltylab.upstream.release import Upstream as Upstream
from penaltylab.upstream.release import load as load
