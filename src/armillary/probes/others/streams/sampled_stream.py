"""What is the stream before the first block and after each block? For the sampled tokens, at the norms that read it."""

from dataclasses import dataclass

from armillary.probes.instruments.samples import SAMPLES
from armillary.probes.machinery import Evidence, Floats, Ints, once
from armillary.probes.machinery.layers import stream_states


@dataclass(frozen=True, eq=False)
class Streams:
    """The same ordinary tokens at every state of the stream."""

    x: dict[str, Floats]
    """State → [token, d], float32 as the model has it."""
    document: Ints
    token: Ints


@once
def sampled_streams(evidence: Evidence, arm: str) -> Streams:
    """Tokens that are ordinary at every state: no first position, no massive activation."""
    states, norms = stream_states(evidence.anatomy), evidence.model(arm).norms
    shared = evidence[SAMPLES][arm].shared(state.norm for state in states)
    points = {s.name: norms[s.norm](shared.x[s.norm]) if s.output else shared.x[s.norm] for s in states}
    return Streams({name: x.float().numpy() for name, x in points.items()}, shared.document, shared.token)
