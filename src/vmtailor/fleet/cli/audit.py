# SPDX-License-Identifier: Apache-2.0
"""`vmtailor fleet audit`: compile some kernels of a remote cache again, and compare the bytes."""

from __future__ import annotations

import re

from vmtailor.base import output
from vmtailor.base.cache import remote_cache, remote_files
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import AnswerNo, HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.base.text import plural
from vmtailor.fleet.run import kernel_audit
from vmtailor.fleet.run.kernel_audit import AuditedKernel, AuditVerdict
from vmtailor.pipeline import shared_results

#: The share of kernels that are compiled again, unless another is asked for.
SHARE = 0.05
_PERCENT = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?")


def read_share(text: str) -> float:
    """Return the share that `5%` names, from 0 to 1. Raises UserInputError for other text."""
    digits = text.removesuffix("%")
    if text != digits and _PERCENT.fullmatch(digits) and 0 < float(digits) <= 100:
        return float(digits) / 100
    raise UserInputError(f"'{text[:40]}' is not a share of the kernels", hint="write it as 5%")


def audit(url: str, share: float, *, json: bool = False) -> None:
    """Compile a share of the kernels again that hosts with our tools have uploaded, and compare their bytes.

    Raises AnswerNo when one differs."""
    cache = shared_results.remote_cache(url)
    try:
        found = kernel_audit.audit(cache, share, Store(), (lambda one: None) if json else _say)
    except OSError as error:
        raise HostError(
            f"the remote cache {remote_files.shown(url)} cannot be read: {remote_cache.why(error)}",
            hint="check the URL",
        ) from error
    if json:
        output.document(records.to_bytes(found))
    elif found.there:
        tried = sum(one.verdict is not AuditVerdict.NOT_TRIED for one in found.kernels)
        output.say(f"{plural(tried, 'kernel')} of {found.there} compiled again with the tools {found.fingerprint[:12]}")
    if not found.there:
        raise UserInputError(
            f"the remote cache {remote_files.shown(url)} has no kernels of this host's tools",
            hint="audit on a host with the same tools as those that uploaded them",
        )
    if all(one.verdict is AuditVerdict.NOT_TRIED for one in found.kernels):
        raise HostError(
            "none of these kernels could be compiled again here",
            hint="fit an image on this host first: its cache then has the source",
            details="\n".join(sorted({one.said for one in found.kernels})),
        )
    if not found.passed:
        raise AnswerNo(
            "a kernel in the remote cache is not what its inputs give",
            hint="remove its list there; then find out who can write to it, or which tool is not in the fingerprint",
        )


def _say(one: AuditedKernel) -> None:
    output.say(f"{one.key[:12]}  {one.verdict}{f': {one.said}' if one.said else ''}")
