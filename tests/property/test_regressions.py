"""Programs that once broke a property, by what was wrong: the tree that the soak printed, and its seed."""

from __future__ import annotations

import pytest

from tests.property.grammar import parse
from tests.property.properties import check_all, live


@pytest.mark.parametrize(
    ("seed", "tree"),
    [
        pytest.param(
            14,
            "sequence(generator(20, 22, group(49, step(28), step(43), variable(25))), fail(16), step(57))",
            id="a generator's inner frame complained when its reader was closed",
        ),
        pytest.param(
            84,
            "sequence(sequence(try(18, semaphore(43, step(48), shield(21, fail(46)), guard(step(51)), step(33))), "
            "sequence(guard(step(58)), fan(34))))",
            id="operations that raised in a dying frame left coroutines that nobody awaited",
        ),
        pytest.param(
            93,
            "sequence(on_cancel(39, 35, step(25), step(2)), try(4, step(4), try(4, retry(58, cancel(30, step(49))))), "
            "child(48, 6), sequence(gather(43, guard(kept(44, signal(59, 10))), guard(group(1, child(32, 0), local(1), "
            "sleep(3)))), child(28, 0), step(26)))",
            id="closing dropped the inner frame of one that awaits on its way out",
        ),
        pytest.param(
            596,
            "sequence(step(9), step(15), sequence(group(8, cancel(38, variable(37)), sequence(sequence(unawaited(16), "
            "signal(55, 26)), local(51), queue(52, signal(39, 49), child(45, 22), now())), sleep(5)), lock(step(45), "
            "step(34), signal(31, 51)), local(48), child(55, 43)))",
            id="a rebuilt instance took a consumed message again",
        ),
        pytest.param(
            2800,
            "sequence(retry(38, event(sleep(36), gather(33, signal(48, 21), step(8), variable(23), semaphore(57, "
            "child(18, 5), signal(51, 54), step(25))))), child(5, 50))",
            id="messages of one moment lost the order of their numbers",
        ),
        pytest.param(
            303088,
            "sequence(gather(53, completed(kept(22, sleep(30)), race(19), group(59, step(57), step(45)), token(25, 23)), "
            "join(41)))",
            id="results after a failure that a requeue took back met a body that went on from them",
        ),
    ],
)
def test_programs(seed: int, tree: str) -> None:
    program = parse(tree)
    assert repr(program) == tree
    check_all(live(program, seed))
