# SPDX-License-Identifier: Apache-2.0
"""What runs the features, once all are known."""

from __future__ import annotations

from features import argued, main

main(argued())
