# SPDX-License-Identifier: Apache-2.0
"""Names that are drawn for machines that were given none."""

from __future__ import annotations

import secrets

_LEFT = (
    "agile", "amber", "brave", "bright", "brisk", "calm", "clever", "crisp", "deft", "eager", "early", "fair", "fleet",
    "fond", "frank", "gentle", "glad", "golden", "grand", "happy", "hardy", "honest", "humble", "jolly", "keen", "kind",
    "lively", "lucid", "merry", "mild", "modest", "neat", "nimble", "noble", "patient", "placid", "plucky", "polite",
    "proud", "quick", "quiet", "rapid", "ready", "serene", "sharp", "silent", "sincere", "sleek", "smart", "solid",
    "steady", "still", "sunny", "swift", "tidy", "trusty", "upbeat", "vivid", "warm", "wise", "witty", "zesty",
)  # fmt: skip
_RIGHT = (
    "alder", "ash", "aspen", "badger", "beech", "birch", "bison", "cedar", "cherry", "crane", "cypress", "deer", "dove",
    "eagle", "elder", "elm", "falcon", "fern", "finch", "fir", "fox", "gull", "hare", "hawk", "hazel", "heron", "holly",
    "ibis", "ivy", "jay", "juniper", "kestrel", "lark", "larch", "laurel", "linden", "lynx", "maple", "marten", "moss",
    "myrtle", "oak", "olive", "osprey", "otter", "owl", "pine", "plum", "poplar", "quail", "raven", "robin", "rowan",
    "seal", "spruce", "stork", "swallow", "swan", "thrush", "vole", "walnut", "willow", "wren", "yew",
)  # fmt: skip


def drawn(attempt: int = 0) -> str:
    """Return a name of two words; with a number behind it once some attempts have failed."""
    name = f"{secrets.choice(_LEFT)}_{secrets.choice(_RIGHT)}"
    return f"{name}{secrets.randbelow(10**6)}" if attempt > 5 else name
