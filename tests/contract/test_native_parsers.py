# SPDX-License-Identifier: Apache-2.0
"""Init's parsers, compiled with the address and undefined-behaviour sanitizers: right on good input, unhurt by bad."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import random
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.port_wire import encode_on_port
from tests.fakes.sanitized import compiled, records_of

from vmtailor.drivers.guest.guest_volume import config_bytes
from vmtailor.drivers.guest.wire import MAGIC, OPEN_KEY, Decoder, encode
from vmtailor.model.architecture import named
from vmtailor.model.boots.surroundings import GuestSurroundings, Limit, Tmpfs
from vmtailor.model.boots.workload import Run, Terminal
from vmtailor.model.exercise import LOADS, Exercise, Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.model.image import ImageConfig
from vmtailor.model.load import Load, LoadPage

pytestmark = pytest.mark.contract

#: Inputs of one round of damage; a round is one process.
ROUND = 3000


#: What QEMU says of its own accord, and of the request before: read until then.
GREETED = b'{"QMP": {"version": {}, "capabilities": []}}\r\n{"return": {}}\r\n'


def of_cpu(number: int, flags: int, waits: int) -> str:
    return (
        f"\r\nCPU#{number}\r\nRAX=0000000000000000 RBX=ffffffff81a0c940\r\n"
        f"RIP=ffffffff816a5a0f RFL={flags:08x} [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT={waits}\r\nES =0000\r\n"
    )


def asked(architecture: str, answer: bytes) -> bytes:
    """An input of the parser of registers."""
    row = named(architecture).emulator
    return b"\0".join((row.cpu.encode(), row.halted.encode(), GREETED + answer))


def option(number: int, value: bytes) -> bytes:
    return bytes((number, len(value))) + value


def leased(kind: int, *options: bytes, ip: str = "10.0.2.15", ident: int = 1234, mac: bytes = b"\2\0\0\0\0\1") -> bytes:
    """An answer of a DHCP server."""
    head = struct.pack(
        "!BBBBIHHIIIII", 2, 1, 6, 0, ident, 0, 0, 0, int(ipaddress.IPv4Address(ip)), 0, 0, 0
    )[:28]  # fmt: skip
    fixed = head + mac.ljust(16, b"\0") + bytes(192) + b"\x63\x82\x53\x63"
    return fixed + option(53, bytes((kind,))) + b"".join(options) + b"\xff"


SERVER = option(54, bytes((10, 0, 2, 2)))
GOOD_LEASE = leased(
    5, SERVER, b"\0", option(1, b"\xff\xff\xff\0"), option(3, bytes((10, 0, 2, 2))), option(6, bytes((10, 0, 2, 3))),
    option(51, (86400).to_bytes(4, "big")), option(58, (600).to_bytes(4, "big")),
)  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("parsers", tmp_path_factory.mktemp("native"))


def parse(program: Path, parser: str, inputs: list[bytes]) -> list[str]:
    """What the parser made of each input. A sanitizer's complaint fails the test."""
    feed = b"".join(len(data).to_bytes(4, "little") + data for data in inputs)
    done = subprocess.run([program, parser], input=feed, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-3000:]
    lines = done.stdout.decode("utf-8", "replace").split("\n")[:-1]
    return lines


def damaged(seeds: list[bytes], seed: int) -> list[bytes]:
    """Each input made from a good one: bytes changed, cut, doubled, spliced."""
    rng = random.Random(seed)
    out = []
    for _ in range(ROUND):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(data) + 1)
            kind = rng.randrange(5)
            if kind == 0 and at < len(data):
                data[at] = rng.choice((0, 10, 32, 255, rng.randrange(256)))
            elif kind == 1:
                del data[at : at + rng.randint(1, 40)]
            elif kind == 2:
                data[at:at] = data[at : at + rng.randint(1, 200)]
            elif kind == 3:
                other = rng.choice(seeds)
                data[at:at] = other[rng.randrange(len(other) + 1) :][:100]
            else:
                data[at:at] = rng.choice((b"99999999999999999999", b"-1", b"\0", b"\n", b":", b",", b"\xf5T"))
        out.append(bytes(data))
    return out


CONFIG = config_bytes(
    ImageConfig("amd64", entrypoint=("/bin/app",), env=(("A", "1"), ("B", "2")), user="www-data", working_dir="/srv")
)
SURROUNDINGS = GuestSurroundings(
    read_only=True, no_new_privileges=True, shm_bytes=5, domain="d", oom_score_adj=-1, rights=0xFF, hosts=("a", "b"),
    resolver=("c",), groups=("d",) * 3, limits=(Limit(1, 2, -1),) * 4, tmpfs=(Tmpfs("/t", 14, "size=1m"),) * 5,
    sysctls=(("a/b", "1 2"),) * 6, layer="2 commit=1",
)  # fmt: skip
FULL = Run(
    argv=("a", "b", "c"), env=(("A", "2"), ("C", "3")), user="1:2", terminal=Terminal(), tracer=("-f",),
    quiet=("EAGAIN", "EINTR"),
    network="10.0.2.15/24,10.0.2.2,10.0.2.3", privileged=True,
    exercise=Exercise(
        "x", Ready(ReadyKind.HTTP, Step(StepKind.HTTP, port=80, expect=Expect(status=200))),
        tuple(Step(StepKind.COMMAND, argv=("x",) * 9, expect=Expect(exit_code=1, contains="y")) for _ in range(5)),
    ),
)  # fmt: skip


def test_records_are_read_as_they_were_written(program: Path) -> None:
    assert parse(program, "records", [CONFIG, records_of(FULL), records_of(Run(stop_signal="SIGKILL"))]) == [
        "argv=1 env=2 steps=0 stop=15 user=www-data cwd=/srv privileged=0",
        "argv=3 env=2 steps=5 stop=15 user=1:2 cwd=/ privileged=1",
        "argv=0 env=0 steps=0 stop=9 user= cwd=/ privileged=0",
    ]


def test_surroundings_are_read_as_they_were_written(program: Path) -> None:
    few = Run(surroundings=GuestSurroundings(rights=0))
    assert parse(program, "records", [records_of(Run(surroundings=SURROUNDINGS)), records_of(few)]) == [
        "argv=0 env=0 steps=0 stop=15 user= cwd=/ privileged=0 read-only=1 no-new-privileges=1 shm=5 domain=d oom=-1 "
        "layer=2 commit=1 rights=ff lists 2 1 3 4 5 6",
        "argv=0 env=0 steps=0 stop=15 user= cwd=/ privileged=0 read-only=0 no-new-privileges=0 shm=(null) "
        "domain=(null) oom=(null) layer=(null) rights=0 lists 0 0 0 0 0 0",
    ]


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ("10.0.2.15/24,10.0.2.2,10.0.2.3", "fine 10.0.2.15/24,10.0.2.2,10.0.2.3"),
        ("10.4.0.2::10.4.0.1:255.255.255.0:urunc:eth0:off", "fine 10.4.0.2/24,10.4.0.1,"),
        ("10.4.0.2::169.254.1.1:255.255.255.255:n:eth0:off:10.96.0.10", "fine 10.4.0.2/32,169.254.1.1,10.96.0.10"),
        ("10.4.0.2:::255.0.255.0:", "fine 10.4.0.2/0,,"),  # init then says that it is no network
        ("10.4.0.2:", "fine 10.4.0.2/0,,"),
        ("dhcp", "wrong /0,,"),
        (":::::eth0:dhcp", "wrong /0,,"),
        ("10.4.0.2", "wrong 10.4.0.2/0,,"),
    ],
)
def test_a_network_is_read_as_the_host_or_the_kernels_own_word_says_it(program: Path, word: str, read: str) -> None:
    assert parse(program, "net", [word.encode()]) == [read]


@pytest.mark.parametrize("kind", [kind for kind in StepKind if kind is not StepKind.HOST_COMMAND])
def test_every_kind_of_step_that_is_asked_inside_is_read(program: Path, kind: StepKind) -> None:
    load = Load((LoadPage("/"),), sessions=1) if kind in LOADS else None
    step = Step(kind, port=80, argv=("x",) if kind is StepKind.COMMAND else (), load=load)
    run = Run(exercise=Exercise("x", Ready(ReadyKind.HTTP, Step(StepKind.HTTP, port=80)), (step, step)))
    assert parse(program, "records", [records_of(run)])[0].startswith("argv=0 env=0 steps=2 ")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not ended by a NUL"),
        (b"vmtailor 1", "not ended by a NUL"),
        (b"vmtailor 2\0", "not of this version"),
        (b"vmtailor 1\0arg\0", "a record without a value"),
        (b"vmtailor 1\0what x\0", "unknown record"),
        (b"vmtailor 1\0.port 1\0", "no step is open"),
        (b"vmtailor 1\0step http\0.port 65536\0", "not a number in range"),
        (b"vmtailor 1\0step http\0.port -1\0", "not a number in range"),
        (b"vmtailor 1\0step exit\0", "unknown kind of step"),
        (b"vmtailor 1\0env X\0", "not NAME=value"),
        (b"vmtailor 1\0key 00\0", "not 32 hexadecimal digits"),
        (b"vmtailor 1\0privileged 2\0", "neither 0 nor 1"),
        (b"vmtailor 1\0+what x\0", "unknown record"),
        (b"vmtailor 1\0+ x\0", "unknown record"),
        (b"vmtailor 1\0+read-only 2\0", "neither 0 nor 1"),
        (b"vmtailor 1\0" + b"step http\0" * 257, "too many steps"),
    ],
)
def test_a_bad_record_is_named(program: Path, data: bytes, says: str) -> None:
    assert parse(program, "records", [data]) == [f"wrong: {says}"]


@pytest.mark.parametrize("seed", range(3))
def test_damaged_records(program: Path, seed: int) -> None:
    assert parse(
        program, "records", damaged([CONFIG, records_of(FULL), records_of(Run(surroundings=SURROUNDINGS))], seed)
    )


frames = st.lists(st.tuples(st.sampled_from("ieswg"), st.binary(max_size=100), st.binary(max_size=20)), max_size=5)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(frames, st.integers(0, 255)), min_size=1, max_size=20))
def test_both_decoders_agree(program: Path, lines: list[tuple[list[tuple[str, bytes, bytes]], int]]) -> None:
    inputs, expected = [], []
    for items, piece in lines:
        data = b"".join(noise + encode(kind, payload, i) for i, (kind, payload, noise) in enumerate(items))
        heard, _ = Decoder(None).feed(data)
        inputs.append(bytes([piece]) + data)
        expected.append("".join(f"{ord(frame.type):02x}:{frame.payload.hex()} " for frame in heard))
    assert parse(program, "wire", inputs) == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ieswgcq"), st.binary(max_size=200)), max_size=6), st.integers(0, 255))
def test_frames_on_a_port_in_any_pieces(program: Path, items: list[tuple[str, bytes]], piece: int) -> None:
    """Standard input comes in parts; of all else what is longer than 64 bytes is cut off."""
    line = b"".join(encode_on_port(kind, payload, n, OPEN_KEY) for n, (kind, payload) in enumerate(items))
    others = "".join(f"{ord(kind):02x}:{payload[:64].hex()} " for kind, payload in items if kind != "i")
    stream = sum(len(payload) for kind, payload in items if kind == "i")
    assert parse(program, "port", [bytes([piece]) + line]) == [f"{others}stream={stream} fine"]


@pytest.mark.attack
@pytest.mark.parametrize("seed", range(3))
def test_damaged_frames_on_a_port(program: Path, seed: int) -> None:
    frames_of = (encode_on_port(kind, b"12 34", n, OPEN_KEY) for n, kind in enumerate("iswcq"))
    seeds = [bytes([40]) + b"".join(frames_of), bytes([3]) + encode_on_port("i", bytes(5000), 0, OPEN_KEY)]
    assert len(parse(program, "port", damaged(seeds, seed))) == ROUND


def test_a_port_hears_nothing_behind_what_is_no_frame(program: Path) -> None:
    good = encode_on_port("s", b"15", 0, OPEN_KEY)
    forged = encode_on_port("s", b"15", 1, bytes(15) + b"\1")
    assert parse(program, "port", [b"\xff" + good + forged + good]) == ["73:3135 stream=0 damaged"]


@pytest.mark.parametrize("seed", range(3))
def test_damaged_frames(program: Path, seed: int) -> None:
    seeds = [b"\x10" + encode("i", b"x" * 50, 0) + encode("s", b"15", 1), b"\xff" + MAGIC * 20, b"\0" + bytes(OPEN_KEY)]
    assert len(parse(program, "wire", damaged(seeds, seed))) == ROUND


def http(body: bytes, *headers: bytes, status: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join([status, *headers, b"", b""]) + body


RESPONSES = {
    "length": (http(b"hello", b"Content-Length: 5"), "done 200", b"hello"),
    "to the end": (http(b"hello"), "done 200", b"hello"),
    "chunks": (
        http(b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nT: 1\r\n\r\n", b"transfer-encoding: Chunked"),
        "done 200",
        b"hello",
    ),
    "more than said": (http(b"hello!", b"Content-Length:5"), "done 200", b"hello"),
    "less than said": (http(b"hell", b"Content-Length: 5"), "not 200", b"hell"),
    "unfinished chunk": (http(b"5\r\nhel", b"Transfer-Encoding: chunked"), "not 200", b"hel"),
    "nothing": (http(b"", status=b"HTTP/1.0 204 No Content"), "done 204", b""),
    "continue first": (b"HTTP/1.1 100 Continue\r\n\r\n" + http(b"x", b"Content-Length: 1"), "done 200", b"x"),
    "bare line feeds": (b"HTTP/1.0 404 No\nContent-Length: 2\n\nno", "done 404", b"no"),
    "not HTTP": (b"SSH-2.0-x\r\n", "not 0", b""),
    "negative": (http(b"x", b"Content-Length: -1"), "not 200", b""),
    "endless header": (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 9000, "not 200", b""),
    "too many headers": (http(b"", *[b"X: y"] * 300), "not 200", b""),
    "huge": (http(b"x", b"Content-Length: 99999999999999999999999"), "not 200", b""),
}


@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("piece", [0, 2, 255])
def test_responses(program: Path, name: str, piece: int) -> None:
    data, says, body = RESPONSES[name]
    assert parse(program, "http", [bytes([piece]) + data]) == [f"{says} {len(body)} {hashlib.sha256(body).hexdigest()}"]


@pytest.mark.parametrize("seed", range(3))
def test_damaged_responses(program: Path, seed: int) -> None:
    seeds = [bytes([piece]) + data for piece in (0, 30, 255) for data, _, _ in RESPONSES.values()]
    assert len(parse(program, "http", damaged(seeds, seed))) == ROUND


ANSWERS = {
    "a status": (b"+OK\r\n", "done 0 2"),
    "an error": (b"-ERR no\r\n", "done 1 6"),
    "a number": (b":12\r\n", "done 0 2"),
    "a text": (b"$5\r\nhello\r\n", "done 0 5"),
    "an empty text": (b"$0\r\n\r\n", "done 0 0"),
    "nothing": (b"$-1\r\n", "done 0 0"),
    "an array": (b"*2\r\n$1\r\na\r\n:7\r\n", "done 0 2"),
    "arrays in arrays": (b"*1\r\n*1\r\n$1\r\na\r\n", "done 0 1"),
    "half of a text": (b"$5\r\nhel", "more 0 3"),
    "a long line": (b"+" + b"a" * 600 + b"\r\n", "bad 0 0"),
    "too many items": (b"*1000001\r\n", "bad 0 0"),
    "a length that is none": (b"$5x\r\n", "bad 0 0"),
    "another protocol": (b"HTTP/1.1 200 OK\r\n", "bad 0 0"),
}


@pytest.mark.parametrize("piece", [0, 2, 255])
@pytest.mark.parametrize("name", ANSWERS)
def test_answers_of_redis_in_pieces(program: Path, name: str, piece: int) -> None:
    data, says = ANSWERS[name]
    assert parse(program, "redis", [bytes([piece]) + data]) == [says]


@pytest.mark.parametrize("seed", range(3))
def test_damaged_answers_of_redis(program: Path, seed: int) -> None:
    seeds = [bytes([piece]) + data for piece in (0, 30, 255) for data, _ in ANSWERS.values()]
    assert len(parse(program, "redis", damaged(seeds, seed))) == ROUND


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("/proc/sys/vm/swappiness=1", "1 0"),
        ("/sys/block/vda/queue/scheduler=none", "0 1"),
        ("/sys/a=1;/proc/sys/b=2", "1 1"),
        ("/proc/sys/a=/sys/b", "1 0"),
        ("", "0 0"),
    ],
)
def test_where_settings_lie(program: Path, words: str, says: str) -> None:
    assert parse(program, "tuning", [words.encode()]) == [says]


PASSWD = (
    b"root:x:0:0:root:/root:/bin/sh\n\nbad line\nwww:x:33:34::/srv:\nx:x:70000:1\n1000:x:5:6::/five:\nlast:x:9:9::/l:"
)
GROUP = b"root:x:0:\nwww:x:34:\nextra:x:44:foo,www\nmore:x:45:www,\nnot:x:46:wwwx\nnum:x:NaN:www\n55:x:56:\n"


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ("", "0 0 /root"),
        ("root", "0 0 /root"),
        ("www", "33 34 34 44 45 /srv"),
        ("33", "33 34 34 44 45 /srv"),
        ("www:extra", "33 44 44 /srv"),
        ("www:7", "33 7 7 /srv"),
        ("1234", "1234 0 0 /"),
        ("1234:www", "1234 34 34 /"),
        ("1000", "1000 0 0 /"),  # a number is a number, though a user has it for a name
        ("root:55", "0 55 55 /root"),
        ("x", "70000 1 1 /"),
        ("last", "9 9 9 /l"),
        ("nobody", "wrong: no such user in /etc/passwd"),
        ("root:nogroup", "wrong: no such group in /etc/group"),
        ("4294967295", "wrong: no such user in /etc/passwd"),
        ("bad line", "wrong: no such user in /etc/passwd"),
    ],
)
def test_users_as_container_engines_find_them(program: Path, user: str, says: str) -> None:
    assert parse(program, "user", [user.encode() + b"\0" + PASSWD + b"\0" + GROUP]) == [says]


@pytest.mark.parametrize(
    ("user", "wanted", "says"),
    [
        ("", "www", "0 0 0 34 /root"),
        ("", "www,44,more,www,34", "0 0 0 34 45 44 /root"),
        ("www", "77,extra", "33 34 34 44 45 77 /srv"),
        ("1234", "55", "1234 0 0 56 /"),  # a group of this name goes before the number
        ("1234", "57", "1234 0 0 57 /"),
        ("1234:www", "extra", "1234 34 34 44 /"),
        ("", "nope", "wrong: no such group in /etc/group to add: nope"),
        ("", "www,4294967295", "wrong: no such group in /etc/group to add: 4294967295"),
        ("nobody", "www", "wrong: no such user in /etc/passwd"),
    ],
)
def test_groups_that_are_added(program: Path, user: str, wanted: str, says: str) -> None:
    data = b"\0".join((user.encode(), PASSWD, GROUP, wanted.encode()))
    assert parse(program, "user", [data]) == [says]


MEMBERS = b"root:x:0:root\n" + b"".join(b"g%d:x:%d:www,root\n" % (n, n) for n in range(100, 180))


@pytest.mark.parametrize(
    ("user", "group", "says"),
    [
        # All 80, and the primary group once, first, wherever the file has it.
        ("www", MEMBERS, ["33", "34", "34", *map(str, range(100, 180)), "/srv"]),
        ("33", b"a:x:40:www\nwww:x:34:www\nb:x:50:www\n", ["33", "34", "34", "40", "50", "/srv"]),
        ("root", MEMBERS, ["0", "0", "0", *map(str, range(100, 180)), "/root"]),
        ("root", b"a:x:7:root\n", ["0", "0", "0", "7", "/root"]),
        ("0:0", MEMBERS, ["0", "0", "/root"]),
        ("www:g100", MEMBERS, ["33", "100", "100", "/srv"]),
        # As many as the kernel takes, and one more.
        ("www", b"".join(b":x:%d:www\n" % n for n in range(1000, 66_535)),
         ["33", "34", "34", *map(str, range(1000, 66_535)), "/srv"]),
        ("www", b"".join(b":x:%d:www\n" % n for n in range(1000, 66_536)),
         ["wrong: the user is in more than 65536 groups"]),
    ],
)  # fmt: skip
def test_every_group_counts(program: Path, user: str, group: bytes, says: list[str]) -> None:
    assert parse(program, "user", [user.encode() + b"\0" + PASSWD + b"\0" + group]) == [" ".join(says)]


@pytest.mark.parametrize("seed", range(3))
def test_damaged_user_files(program: Path, seed: int) -> None:
    seeds = [user + b"\0" + PASSWD + b"\0" + GROUP + b"\0www,44,x" for user in (b"www:extra", b"33", b"")]
    assert len(parse(program, "user", damaged(seeds, seed))) >= ROUND


def test_registers_say_when_nothing_runs_any_more(program: Path) -> None:
    cases = [
        (of_cpu(0, 0x046, 1), True),
        (of_cpu(0, 0x246, 1), False),  # idle: the next interrupt wakes it
        (of_cpu(0, 0x046, 0), False),  # at work with interrupts off
        (of_cpu(0, 0x046, 1) + of_cpu(1, 0x046, 1), True),
        (of_cpu(0, 0x046, 1) + of_cpu(1, 0x246, 1), False),
        ("EAX=00000000\r\nEIP=0000fff0 EFL=00000002 [-------] CPL=0 II=0 A20=1 SMM=0 HLT=1\r\n", True),
        ("unknown command: 'info registers'", False),
        ("", False),
    ]
    inputs = [asked("x86_64", json.dumps({"return": text}).encode() + b"\r\n") for text, _ in cases]
    assert [line == "halted" for line in parse(program, "registers", inputs)] == [halted for _, halted in cases]
    known = asked("x86_64", json.dumps({"return": of_cpu(0, 0x046, 1)}).encode() + b"\r\n")
    assert parse(program, "registers", [known[:-1], known.replace(GREETED, b""), b"\0\0" + known]) == ["not"] * 3
    lines = parse(program, "registers", damaged([known, *inputs], seed=7))
    assert len(lines) == ROUND and set(lines) <= {"halted", "not"}


def test_answers_of_dhcp_servers_are_read(program: Path) -> None:
    bare = leased(2, SERVER, option(1, b"\xff\xff\xff\xff"), ip="192.0.2.7")
    assert parse(program, "dhcp", [GOOD_LEASE, bare, leased(6, SERVER, ip="0.0.0.0")]) == [
        "5 10.0.2.15/24 10.0.2.2 10.0.2.3 10.0.2.2 86400 600",
        "2 192.0.2.7/32 0.0.0.0 0.0.0.0 10.0.2.2 0 0",
        "6 0.0.0.0/0 0.0.0.0 0.0.0.0 10.0.2.2 0 0",
    ]


@pytest.mark.attack
def test_what_is_no_answer_to_this_client_is_left(program: Path) -> None:
    wrong = [
        leased(5, SERVER, ident=1235), leased(5, SERVER, mac=b"\2\0\0\0\0\2"), leased(5), leased(1, SERVER),
        b"\1" + GOOD_LEASE[1:], GOOD_LEASE[:239], b"", GOOD_LEASE[:236] + b"\0\0\0\0" + GOOD_LEASE[240:],
        GOOD_LEASE[:-6], leased(5, SERVER, option(1, b"\xff\0\xff\0")), leased(5, SERVER, b"\x03\xff\x0a"),
        *(leased(5, SERVER, ip=ip) for ip in ("0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255")),
    ]  # fmt: skip
    assert set(parse(program, "dhcp", wrong)) == {"not"}
    # A gateway that no host can be is as none.
    odd = leased(5, SERVER, option(3, b"\x7f\0\0\1"), option(6, b"\xe0\0\0\1"), option(1, b"\xff\xff\0\0"))
    assert parse(program, "dhcp", [odd]) == ["5 10.0.2.15/16 0.0.0.0 0.0.0.0 10.0.2.2 0 0"]


@pytest.mark.attack
@pytest.mark.parametrize("seed", range(3))
def test_damaged_answers_of_dhcp_servers_do_no_harm(program: Path, seed: int) -> None:
    lines = parse(program, "dhcp", damaged([GOOD_LEASE, leased(2, SERVER), leased(6)], seed))
    assert len(lines) == ROUND and any(line != "not" for line in lines)


def test_questions_to_dhcp_servers_say_who_asks_for_what(program: Path) -> None:
    own, wanted, server = b"\0\0\0\0", bytes((10, 0, 2, 15)), bytes((10, 0, 2, 2))
    broad, renewing, long = parse(
        program,
        "question",
        [own + wanted + server + b"web\0", wanted + own + own + b"\0", bytes(12) + b"x" * 300 + b"\0"],
    )
    first = bytes.fromhex(broad)
    assert len(first) >= 300 and first[:3] == b"\1\1\6" and first[10] == 0x80 and first[12:16] == own
    assert first[28:34] == b"\2\0\0\0\0\1" and first[236:240] == b"\x63\x82\x53\x63"
    for part in (option(53, b"\3"), option(50, wanted), option(54, server), option(12, b"web")):
        assert part in first[240:]
    second = bytes.fromhex(renewing)
    assert second[10] == 0 and second[12:16] == wanted and option(50, wanted) not in second
    assert option(12, b"x" * 63) + b"\xff" in bytes.fromhex(long)
