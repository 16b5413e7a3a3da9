# SPDX-License-Identifier: Apache-2.0
"""Virtual time: of what was executed, at a processor's pace; and of a counter that began anew before the kernel ran."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.guests import boots
from vmtailor.model.architecture import named, presumed

ROUND_NS = 1 << 33
SLOW = replace(presumed().emulator, pace=2, round_ns=ROUND_NS)
PLAIN = replace(SLOW, pace=0, round_ns=0)


@given(
    st.integers(0, 1 << 34),
    st.integers(0, ROUND_NS * 98 // 100),
    st.integers(0, 10_000),
)
def test_rounds_that_were_lost_are_added(executed: int, waited_ns: int, twice: int) -> None:
    """Whatever was waited, up to nearly a round; and though instructions that fault are counted twice."""
    true_ns = (executed << 2) + waited_ns
    assert boots.of_counter(true_ns % ROUND_NS, executed + twice, SLOW) == true_ns


@given(st.integers(0, 1 << 60), st.integers(0, 1 << 40))
def test_a_counter_without_rounds_is_believed(counted_ns: int, executed: int) -> None:
    assert boots.of_counter(counted_ns, executed, PLAIN) == counted_ns
    assert boots.of_counter(counted_ns, None, SLOW) == counted_ns


def test_a_packaged_kernel_that_unpacks_itself() -> None:
    """Init's mark of one on Loongson-3: 3,230 million instructions after reset, a counter that had begun anew."""
    emulator = named("mips64el").emulator
    assert boots.of_executed(3_229_618_293, emulator) == 12_918_473_172
    assert boots.of_counter(4_328_538_798, 3_229_618_293, emulator) == 12_918_473_390
