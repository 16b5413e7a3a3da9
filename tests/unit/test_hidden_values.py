# SPDX-License-Identifier: Apache-2.0
"""Values that nobody may read: hidden in texts, bytes, the tracer's log and all that a boot leaves."""

import pytest

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.hidden_values import HiddenValues
from vmtailor.booting import given_environment
from vmtailor.booting.given_environment import GivenEnvironment
from vmtailor.model.boots.ending import End, Ending, Gathered
from vmtailor.model.guest import Answer, GuestNote, GuestReport, StepResult
from vmtailor.pipeline import run_environment

CANARY = "canary-7f3a91"
HIDDEN = HiddenValues((("TOKEN", CANARY), ("MODE", "info"), ("PIN", "123")))
MARK = "‹secret TOKEN›"


def test_values_are_replaced_by_their_names_and_are_never_printed() -> None:
    assert HIDDEN.text(f"a {CANARY}{CANARY} 123") == f"a {MARK}{MARK} 123"
    assert HIDDEN.data(f"\x00{CANARY}\n".encode()) == f"\x00{MARK}\n".encode()
    assert CANARY not in repr(HIDDEN)
    assert CANARY not in repr(GivenEnvironment(secret=(("TOKEN", CANARY),)))


def test_a_value_that_holds_another_is_hidden_whole() -> None:
    assert HiddenValues((("A", "abcd"), ("B", "xabcdx"))).text("xabcdx abcd") == "‹secret B› ‹secret A›"


def test_lines_of_a_value_are_hidden_each_for_itself() -> None:
    key = HiddenValues((("KEY", "-----BEGIN KEY-----\nMIIEvQIBADAN\nab\n"),))
    assert key.text("read MIIEvQIBADAN, and ab") == "read ‹secret KEY›, and ab"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f'1.5 write(1, "x{CANARY}", 14) = 14 <0.1>', f'1.5 write(1, "x{MARK}", 14) = 14 <0.1>'),
        (f"1.5 read(3</run/{CANARY}>, 0x1) = 0 <0.1>", f"1.5 read(3</run/{MARK}>, 0x1) = 0 <0.1>"),
        ('1.5 write(1, "TOKEN=canary-7f"..., 99) = 99', f'1.5 write(1, "TOKEN={MARK}"..., 99) = 99'),
        ('1.5 open("/proc/self/mountinfo") = 3 <0.1>', '1.5 open("/proc/self/mountinfo") = 3 <0.1>'),
        ('1.5 open("/etc/info") = 3 <0.1>', '1.5 open("/etc/‹secret MODE›") = 3 <0.1>'),
    ],
)
def test_the_log_of_calls_can_still_be_read(before: str, after: str) -> None:
    assert HIDDEN.calls(before.encode()).decode() == after


def test_the_log_of_calls_hides_what_the_tracer_escapes() -> None:
    hidden = HiddenValues((("TOKEN", 'a"b\\c\né1€x'),))
    log = rb'1.5 write(1, "a\"b\\c\n\303\2511\342\202\254x", 14) = 14'
    assert hidden.calls(log).decode() == f'1.5 write(1, "{MARK}", 14) = 14'


def test_numbers_of_the_log_stay_numbers() -> None:
    assert HiddenValues((("PORT", "5432"),)).calls(b'5432.1 bind(3, "5432") = 0').decode() == (
        '5432.1 bind(3, "‹secret PORT›") = 0'
    )


@pytest.mark.attack
def test_nothing_that_a_boot_leaves_holds_a_value() -> None:
    answer = Answer(200, head=f"<{CANARY}>", error=CANARY, sha256="0" * 64)
    report = GuestReport(
        notes=(GuestNote("", CANARY),), fatal=GuestNote("X", CANARY), exit_reason=CANARY, stdout=CANARY, stderr=CANARY,
        results=(StepResult(0, "http", 1, 1, True, 5, answer, answer, why=CANARY),),
        files=(("kernel-log", CANARY), ("memory", "x")), console=CANARY, stdout_sha256="1" * 64,
    )  # fmt: skip
    end = End(Ending.EXITED, "qemu", CANARY, CANARY, 1.0, 0)
    left = Gathered(end, 0.0, report, console=CANARY.encode(), requests=f'1 write(1, "{CANARY}")'.encode())
    kept = GivenEnvironment(secret=(("TOKEN", CANARY),)).without(left)
    whole = records.to_bytes(kept.report) + kept.console + kept.requests + repr(kept.end).encode()
    assert CANARY.encode() not in whole
    assert b"1" * 64 not in whole and b"0" * 64 not in whole, "no digest of a value that could be guessed"
    assert GivenEnvironment(plain=(("TOKEN", CANARY),)).without(left) is left


@pytest.mark.attack
def test_keys_have_names_of_secrets_and_values_of_what_anybody_may_read() -> None:
    one, other = (GivenEnvironment((("MODE", "a"),), (("TOKEN", value),)) for value in ("x", "y"))
    assert one.key == other.key == ("env MODE=a", "secret TOKEN")
    assert one.key != GivenEnvironment((("MODE", "b"),), one.secret).key
    assert not GivenEnvironment().key, "what was kept without variables is found again"


def test_secrets_are_taken_from_the_environment_and_the_lack_of_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_environment, "_given", GivenEnvironment())
    monkeypatch.setenv("TOKEN", CANARY)
    run_environment.begin((("MODE", "a"), ("TOKEN", "b")), ("TOKEN",))
    assert given_environment.given().variables == (("MODE", "a"), ("TOKEN", CANARY))
    with pytest.raises(UserInputError, match="GONE has no value"):
        run_environment.begin((), ("GONE",))
    monkeypatch.setattr(run_environment, "_known", {"TOKEN": f"{CANARY}\0"})
    with pytest.raises(UserInputError, match="TOKEN holds a NUL") as refused:
        run_environment.begin((), ("TOKEN",))
    assert CANARY not in refused.value.message
    with pytest.raises(UserInputError, match="a name alone") as refused:
        run_environment.names([f"TOKEN={CANARY}"])
    assert CANARY not in refused.value.message
