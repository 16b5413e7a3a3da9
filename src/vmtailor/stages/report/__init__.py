# SPDX-License-Identifier: Apache-2.0
"""The report stage: the record of a fit as tables on the terminal, as one JSON document, and as one HTML page."""

from vmtailor.stages.report.document import FIT_SCHEMA, fit_document
from vmtailor.stages.report.fit_end import mark_of
from vmtailor.stages.report.markdown import summary
from vmtailor.stages.report.report_page import page, write_page
from vmtailor.stages.report.report_tables import show, show_figures

__all__ = [
    "FIT_SCHEMA",
    "fit_document",
    "mark_of",
    "page",
    "show",
    "show_figures",
    "summary",
    "write_page",
]
