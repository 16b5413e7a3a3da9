# SPDX-License-Identifier: Apache-2.0
"""Files that start a fleet's scheduler and workers on what people have: Kubernetes, Slurm, systemd."""
