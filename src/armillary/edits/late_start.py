"""Start a pass behind the blocks that no edit changes: they would give what they gave before."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from torch import nn

from armillary.anatomy import Anatomy
from armillary.edits.edit import Edit, uncompiled


def unchanged_blocks(edits: Sequence[Edit]) -> int:
    """How many blocks, counted from the first, give the same with these edits as without. An edit that does not say
    how many it leaves `unchanged` may change all."""
    return min((int(getattr(edit, "unchanged", 0)) for edit in edits), default=0)


@contextmanager
def keeping(anatomy: Anatomy, outputs: dict[int, Any]) -> Iterator[None]:
    """Keep what every block but the last gives in a pass without edits, so that every later pass of the same tokens can
    start at the first block that its edits change."""
    with ExitStack() as stack:
        stack.enter_context(uncompiled())
        for blocks in range(1, anatomy.layers):
            stack.enter_context(_kept(_block(anatomy, blocks - 1), blocks, outputs))
        yield


@contextmanager
def resuming(anatomy: Anatomy, blocks: int, outputs: dict[int, Any]) -> Iterator[None]:
    """Let the first `blocks` blocks give what they gave in an earlier pass of the same tokens, in place of running.

    `outputs` belongs to these tokens and to this model: number of blocks → what the last of them gave. The first pass
    fills it in. Hooks on the blocks act as ever; what is inside the blocks is not run.
    """
    modules = [_block(anatomy, at) for at in range(blocks)]
    with ExitStack() as stack:
        if blocks:
            stack.enter_context(uncompiled())
        if blocks in outputs:
            for module in modules:
                stack.enter_context(_calling(module, lambda *args, **kwargs: outputs[blocks]))
        elif blocks:
            stack.enter_context(_kept(modules[-1], blocks, outputs))
        yield


def _block(anatomy: Anatomy, at: int) -> nn.Module:
    return anatomy.model.get_submodule(anatomy.sites[f"L{at}.resid_post"].path)


def _kept(block: nn.Module, blocks: int, outputs: dict[int, Any]) -> AbstractContextManager[None]:
    """Keep what this block gives, the last of so many."""
    own = block.forward

    def keep(*args: Any, **kwargs: Any) -> Any:
        outputs[blocks] = own(*args, **kwargs)
        return outputs[blocks]

    return _calling(block, keep)


@contextmanager
def _calling(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Call `forward` in place of the module's own."""
    own = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own
