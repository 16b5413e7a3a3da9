# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501 - lines of other programs are as long as they are
"""What the fuzzer starts from: a little of each format, and words that mean something to some parser."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile

_LOG = b"""[    0.000000] Linux version 6.1.0 (x86_64-linux-gnu-gcc-12) #1 SMP
[    0.000000] Command line: ro quiet console=ttyS0,115200
[    0.005936] Calibrating delay loop... 996.14 BogoMIPS (lpj=4980736)
[    0.100000] calling  early_init+0x0/0x10 @ 1
[    0.103141] initcall early_init+0x0/0x10 returned 0 after 4000 usecs
[    0.200100] clocksource: Switched to clocksource tsc-early
[    0.300000] calling  bus_init+0x0/0x10 [bus] @ 99
[    0.303000] probe of 1c00000.pcie returned 517 after 140 usecs
[    0.310000] initcall bus_init+0x0/0x10 [bus] returned -19 after 9900 usecs
[    1.200000] Run /init as init process
[    1.500000] systemd[1]: systemd 252 running in system mode (+PAM)
[    3.000000] systemd[1]: Switching root.
[    4.000000] systemd[1]: Starting a.service - A...
[    4.250000] systemd[1]: Started a.service - A.
[    9.600000] systemd[1]: Startup finished in 1.481s (kernel) + 1.600s (initrd) + 6.510s (userspace) = 9.591s.
"""


def _each(form: bytes) -> bytes:
    return b"\n".join(form + line for line in _LOG.split(b"\n"))


SEEDS: tuple[bytes, ...] = (
    _LOG,
    _each(b"<6>"),
    _each(b"> "),
    _each(b"Mar 06 13:18:23 kepler kernel: "),
    _each(b"2026-03-06T13:18:05.123456+01:00 debian kernel: "),
    _each(b"[1.000002 0.000100] "),
    _each(b"kern  :info  : "),
    _each("[Пт дек 23 22:41:20 2024] ".encode()),
    _each("11月 05 22:41:20 host kernel: ".encode()),
    _each(b"[pod/vm-0/qemu] 2024-01-01T12:00:00.123456789Z "),
    _each(b"2024-01-01T12:00:00.123456Z 00O "),
    _each(b"INFO:root:"),
    _LOG.replace(b"] ", b"]  [0:        swapper:    0] "),
    _LOG.replace(b"] ", b"s][pid:1,cpu0,swapper/0]"),
    json.dumps({"InstanceId": "i-0", "Output": _LOG.decode()}).encode(),
    json.dumps(_LOG.decode()).encode(),
    b"".join(
        json.dumps({"log": line + "\n", "time": "2024-01-01T00:00:00Z"}).encode() + b"\n"
        for line in _LOG.decode().split("\n")
    ),
    base64.b64encode(_LOG),
    b"version = 0.8\nsystem.uname = Linux version 2.6.29 (u@h) #28 PST\nsystem.cpu = ARMv7 Processor\n",
    _LOG.replace(b"] ", b" < 0.000123>] "),
    _LOG.replace(b"returned ", b"returned\n"),
    b"6,339,5140900,-;calling  a_init+0x0/0x10 @ 1\n6,340,5141900,-;initcall a_init+0x0/0x10 returned 0 after 990 usecs\n",
    b"ffffffff81000000 T _stext\nffffffff81000000 T startup_64\nffffffff81000040 t a_init\nffffffff81000080 t b_init\n"
    b"ffffffff81900000 d table\nffffffffc0201000 t c_init\t[module]\n",
    b"[    0.100000] calling  0xffffffff81000040 @ 1\n[    0.200000] initcall 0xffffffff81000040 returned 0 after 9 usecs\n",
    b"== GRAB-BOOT-DATA INFO ==\n== CONFIG ==\n# Linux/arm 6.13.9 Kernel Configuration\nCONFIG_HZ=100\n== "
    b"KERNEL MESSAGES ==\n" + _LOG,
    b"Startup finished in 11.035s (firmware) + 1.481s (loader) + 2.093s (kernel) + 1.6s (initrd) + 1min 9.6s "
    b"(userspace) = 1min 25s\n"
    b"graphical.target reached after 1min 9.5s in userspace.\n",
    b"1min 1.200s docker.service\n     882ms cloud-init.service\n",
    b"graphical.target @1min 9.5s\n\xe2\x94\x94\xe2\x94\x80multi-user.target @1min 9.5s\n  `-docker.service @8.300s +1min 1.200s\n",
    b'[{"name":"a.service","activated":3000000,"activating":1000000,"time":2000000,"deactivated":0,"deactivating":0}]',
    b'[{"name":"init-local","event_type":"start","timestamp":1559317180.0},{"name":"init-local","event_type":"finish","timestamp":1559317180.5}]',
    b'{"dmesg":[{"pri":6,"time":0.5,"msg":"Linux version 6.1"}]}',
    b'{"MESSAGE":"Linux version 6.1","_TRANSPORT":"kernel","__MONOTONIC_TIMESTAMP":"12345"}\n',
    b"__CURSOR=s=1;i=2\n__MONOTONIC_TIMESTAMP=12345\n_TRANSPORT=kernel\nMESSAGE=Linux version 6.1\n\n"
    b"__CURSOR=s=1;i=3\n__MONOTONIC_TIMESTAMP=22345\nMESSAGE\n\x03\0\0\0\0\0\0\0a\nb\n\n",
    b'<svg><!-- This file is a systemd-analyze SVG file. --><text x="20" y="50">Startup finished in 1.5s (kernel) + 2s (userspace) = 3.5s</text>'
    b'<text class="sec" x="0.000" y="-5.0" >0.0s</text><text class="sec" x="500.0" y="-5.0" >5.0s</text>'
    b'<rect class="activating" x="200.000" y="40.000" width="123.400" height="19.000" /><text class="left" x="205.000" y="54.000">a.service (1.2s)</text></svg>',
    b'<svg><!-- This file is a bootchart SVG file. --><!-- x="100.000000" y="20.000000" -->Log start time: 1.250s Idle time: 8.500s<'
    b'<!-- sshd [345] ppid=1 runtime=123.400ms --><rect class="ps" x="200.000" y="20.000" width="350.000" height="20.000" />'
    b'<text x="5.0" y="15.0">pci_init <tspan class="run">12.5ms</tspan></text></svg>',
    b"       swapper/0-1     [000] .....     0.100100: initcall_start: func=outer_init+0x0/0x10\n"
    b"       swapper/0-1     [000] .....     0.100900: initcall_finish: func=outer_init+0x0/0x10 ret=0\n",
    b"-- Boot Record 01 --\nStarting stage: init-local\n|`->no cache found @00.01700s +00.00200s\nFinished stage: (init-local) 00.87700 seconds\n",
    b"-- Most Recent Boot Record --\n    Kernel Started at: 2019-05-31 15:39:34.500000\n    Kernel ended boot at: 2019-05-31 15:39:36.200000\n",
    b"system.uname = Linux 2.6.27 #1 SMP i686\n154\n1 (init) S 0 0 0 0 -1 42 593 62 0 0 5 114 2 2 20 0 1 0 29 "
    b"12 97\n\n175\n1 (init) S 0 0 0 0 -1 42 "
    b"593 62 0 0 9 120 2 2 20 0 1 0 29 12 97\n\n",
    b"154\ncpu  2 0 117 145 0 0 0\nbtime 17\n\n175\ncpu  7 0 134 162 0 0 0\n   8    0 sda 1 2 3 4 5 6 7 8 9 10 11\n\n",
    b"100\n1 0 (systemd) 500000000 0 0\n\n150\n1 0 (systemd) 900000000 0 0\n\n",
    b"ready_wall_p50 <= +5% of FILE",
    b"U-Boot 2023.01\n\nStarting kernel ...\nbuildroot login: ",
    b"\xff\xfe[\x00 \x000\x00.\x001\x00]\x00",
    b"",
)

DICTIONARY: tuple[bytes, ...] = (
    b"[    1.234567] ",
    b"[",
    b"]",
    b"\n",
    b"\r\n",
    b"=\n",
    b"=3D",
    b"\x1b[31m",
    b"\x1b]0;x\x07",
    b"\x1b[2J",
    b"\0",
    b"> ",
    b"calling  ",
    b"initcall ",
    b"probe of ",
    b" returned ",
    b" after ",
    b" usecs",
    b" @ 1",
    b"+0x0/0x10",
    b"[T1]",
    b"[   C0]",
    b"<6>",
    b"Linux version 6.1 ",
    b"clocksource: Switched to clocksource ",
    b"Run /init as init process",
    b"Freeing unused kernel memory",
    b"Kernel panic - not syncing: ",
    b"Startup finished in ",
    b"1min 2s",
    b"99999999999999999999",
    b"-1",
    b"nan",
    b"1e999",
    b"\xe2\x80\xae",
    b"\xc2\x9b",
    b"\xff",
    b"<svg",
    b"</text>",
    b"<script>",
    b"&amp;",
    b"== KERNEL MESSAGES ==\n",
    b"== CONFIG ==\n",
    b"CONFIG_X=y\n",
    b"{",
    b"}",
    b'"',
    b"null",
    b"[[[[[[[[",
    b"systemd[1]: ",
    b"\x1f\x8b\x08",
    b"BZh9",
    b"\xfd7zXZ\0",
    b"ustar",
    b"\n\n",
    b"login: ",
    b"2026-02-30T99:99:99 ",
)


def tar_of(data: bytes) -> bytes:
    """A gzipped tar archive of one bootchart member."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("proc_ps.log")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return gzip.compress(out.getvalue(), 1)
