# SPDX-License-Identifier: Apache-2.0
"""The report stage: the record of a fit as tables on the terminal, as one JSON document, and as one HTML page."""

from vmtailor.stages.report.document import FIT_SCHEMA, fit_document
from vmtailor.stages.report.fit_end import mark_of
from vmtailor.stages.report.monitor_proof import line as proof_line
from vmtailor.stages.report.monitor_proof import verdicts_of
from vmtailor.stages.report.report_page import page, write_page
from vmtailor.stages.report.report_tables import show, show_figures

__all__ = [
    "FIT_SCHEMA",
    "fit_document",
    "mark_of",
    "page",
    "proof_line",
    "show",
    "show_figures",
    "verdicts_of",
    "write_page",
]
