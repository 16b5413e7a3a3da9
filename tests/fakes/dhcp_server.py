# SPDX-License-Identifier: Apache-2.0
"""A DHCP server on a TAP device of a network namespace of its own, with the client that is given. It grants 10.9.0.5
for a minute, renews it once, takes it back, and grants 10.9.0.6. It prints what the client asked and what came of it:

    unshare --map-root-user --net python dhcp_server.py BUILTIN
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time

OWN, OWN_MAC = bytes((10, 9, 0, 1)), b"\2\0\0\0\0\x09"
FIRST, SECOND = bytes((10, 9, 0, 5)), bytes((10, 9, 0, 6))
DISCOVER, OFFER, REQUEST, ACK, NAK = 1, 2, 3, 5, 6
LIMIT_S = 150


def checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(to_mac: bytes, to: bytes, payload: bytes) -> bytes:
    udp = struct.pack("!HHHH", 67, 68, 8 + len(payload), 0) + payload
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, OWN, to)
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    return to_mac + OWN_MAC + b"\x08\0" + head + udp


def options_of(message: bytes) -> dict[int, bytes]:
    found, at = {}, 240
    while message[at] != 255:
        if message[at] == 0:
            at += 1
            continue
        found[message[at]] = message[at + 2 : at + 2 + message[at + 1]]
        at += 2 + message[at + 1]
    return found


def answer(message: bytes, kind: int, address: bytes) -> bytes:
    fixed = bytearray(message[:240])
    fixed[0] = 2
    fixed[16:20] = address if kind != NAK else bytes(4)
    parts = {53: bytes((kind,)), 54: OWN, 1: b"\xff\xff\xff\0", 3: OWN, 6: OWN, 51: struct.pack("!I", 60)}
    return bytes(fixed) + b"".join(bytes((k, len(v))) + v for k, v in parts.items()) + b"\xff"


def addresses() -> list[str]:
    listed = json.loads(subprocess.run(["ip", "-j", "address", "show", "eth0"], capture_output=True, check=True).stdout)
    return [one["local"] for one in listed[0]["addr_info"] if one["family"] == "inet"]


def main() -> None:
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", b"eth0", 0x0002 | 0x1000))
    client = subprocess.Popen([sys.argv[1], "dhcp", "eth0", "web"], stdout=subprocess.PIPE)
    asked: list[dict[str, object]] = []
    granted, started, renewals = FIRST, time.monotonic(), 0
    try:
        while time.monotonic() - started < LIMIT_S:
            if not select.select([tap], [], [], 1)[0]:
                continue
            data = os.read(tap, 4096)
            sender = data[6:12]
            if data[12:14] == b"\x08\x06" and data[20:22] == b"\0\1" and data[38:42] == OWN:
                reply = data[14:20] + b"\0\2" + OWN_MAC + OWN + data[22:32]
                os.write(tap, sender + OWN_MAC + b"\x08\x06" + reply)
            if data[12:14] != b"\x08\0" or data[23] != 17 or data[36:38] != struct.pack("!H", 67):
                continue
            message = data[42:]
            options = options_of(message)
            kind, own = options[53][0], message[12:16]
            asked.append({
                "kind": kind, "own": socket.inet_ntoa(own), "to": socket.inet_ntoa(data[30:34]),
                "s": time.monotonic() - started, "has": addresses(), "name": options.get(12, b"").decode(),
            })  # fmt: skip
            if kind == DISCOVER:
                os.write(tap, frame(b"\xff" * 6, b"\xff" * 4, answer(message, OFFER, granted)))
            elif own == bytes(4):
                os.write(tap, frame(b"\xff" * 6, b"\xff" * 4, answer(message, ACK, granted)))
                if granted == SECOND:
                    time.sleep(0.5)
                    break
            else:
                renewals += 1
                if renewals > 1:
                    granted = SECOND
                os.write(tap, frame(sender, own, answer(message, NAK if renewals > 1 else ACK, FIRST)))
        ended = addresses()
    finally:
        client.kill()
    said = client.stdout.read().decode() if client.stdout else ""
    print(json.dumps({"asked": asked, "said": said, "has": ended}))


if __name__ == "__main__":
    main()
