# SPDX-License-Identifier: Apache-2.0
"""The verbs for named machines, against a supervisor that is none."""

from __future__ import annotations

import fcntl
import json
import re
import threading
import time
from pathlib import Path

import pytest
from tests.fakes.started import Start
from tests.fakes.supervisor import Caller, Pairs, Supervisor, log_lines, made, running

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import file_lock
from vmtailor.drivers.host import machine_folders, machine_removal
from vmtailor.drivers.host.machine_folders import MachineFolders
from vmtailor.model import kept_machine
from vmtailor.model.image import HealthCheck
from vmtailor.model.machine import PublishedPort


def lines(text: str) -> list[str]:
    return text.splitlines()


# ---- ps


def test_ps_lists_what_runs_and_with_all_the_rest(call: Start) -> None:
    ports = (PublishedPort("127.0.0.1", 8080, 80),)
    made("old", created="2026-01-01T00:00:00.000000Z")
    with running("web", ports=ports) as web:
        code, out, err = call("ps")
        assert (code, err) == (0, "")
        head, row = lines(out)
        assert head.split() == ["MACHINE", "ID", "IMAGE", "COMMAND", "CREATED", "STATUS", "PORTS", "NAMES"]
        assert row.startswith(web.folder.record.id[:12]) and row.endswith("127.0.0.1:8080->80/tcp   web")
        assert '"/server --port 80"' in row and "   Up " in row
        assert [line.split()[-1] for line in lines(call("ps", "-a")[1])[1:]] == ["web", "old"]
        assert call("ps", "-q", "--no-trunc")[1] == f"{web.folder.record.id}\n"
        web.end(3)
    assert len(lines(call("ps")[1])) == 1
    assert re.search(r"   Exited \(3\) .* ago   ", call("ps", "-a")[1])


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("name=we",), {"web"}), (("name=^/web$",), {"web"}), (("name=web", "name=db"), {"web", "db"}),
        (("label=tier",), {"web", "db"}), (("label=tier=front",), {"web"}), (("label=tier", "label=x"), set()),
        (("status=created",), {"db"}), (("status=running",), {"web"}), (("status=exited",), set()),
        (("ancestor=oci:web", "name=db"), {"db"}), (("health=healthy",), set()),
    ],
)  # fmt: skip
def test_filters(call: Start, filters: tuple[str, ...], found: set[str]) -> None:
    made("db", labels=(("tier", "back"),))
    with running("web", labels=(("tier", "front"),)):
        words = [word for one in filters for word in ("--filter", one)]
        assert set(lines(call("ps", "-a", *words, "--format", "{{.Names}}")[1])) == found


def test_a_filter_that_is_none(call: Start) -> None:
    for wrong in ("nope=1", "status", "status=happy", "health=so"):
        code, _, err = call("ps", "-f", wrong)
        assert code == 2 and "--filter" in err and "hint: " in err


def test_forms_of_ps(call: Start) -> None:
    with running("web") as web:
        assert json.loads(call("ps", "--format", "json")[1])["Names"] == "web"
        assert call("ps", "--format", "{{.Names}}\\t{{json .Image}}")[1] == 'web\t"oci:web"\n'
        short = web.folder.record.short_id
        assert call("ps", "--format", "table {{.ID}}\\t{{.Names}}")[1] == f"MACHINE ID     NAMES\n{short}   web\n"
        for wrong in ("{{.Nope}}", "{{range .}}", ""):
            assert call("ps", "--format", wrong or "{{")[0] == 2


@pytest.mark.attack
def test_what_a_record_says_does_not_steer_the_terminal(call: Start) -> None:
    with running("web", image="\x1b[2Jx\u202e", command=("a\nb\x9b", "c"), labels=(("\x1b]0;", "\r"),)):
        for words in (("ps", "--no-trunc"), ("ps", "--format", "{{.Labels}} {{.Image}}"), ("inspect", "web")):
            code, out, err = call(*words)
            assert code == 0 and err == ""
            assert not {"\x1b", "\x9b", "\r"} & set(out.encode("latin-1").decode())


@pytest.mark.attack
@pytest.mark.parametrize(
    "state",
    [
        b"", b"\0" * 100, b"status running", b"status \x1b[2J\0pid -1\0", b"x" * 70_000, b"exit 99999999999999999999\0",
        b"status running\0started-ns 18446744073709551615\0finished-ns x\0health \x1b\0error \x1b[2J\0",
    ],
)  # fmt: skip
def test_states_that_make_no_sense(call: Start, state: bytes) -> None:
    folder = made("web")
    (folder.path / machine_folders.STATE).write_bytes(state)
    for words in (("ps", "-a"), ("inspect", "web")):
        code, out, err = call(*words)
        assert code == 0 and "web" in out and "\x1b" not in out + err


@pytest.mark.attack
def test_folders_that_make_no_sense(call: Start, tmp_path: Path) -> None:
    folders, web = MachineFolders(), made("web")
    other = made("other")
    (other.path / machine_folders.RECORD).write_bytes(b"{" * 100)
    linked = made("linked")
    record = (linked.path / machine_folders.RECORD).rename(tmp_path / "record")
    (linked.path / machine_folders.RECORD).symlink_to(record)
    stolen = made("stolen")
    (stolen.path / machine_folders.RECORD).write_bytes((web.path / machine_folders.RECORD).read_bytes())
    (folders.machines / "..x").mkdir()
    (folders.machines / ("f" * 64)).write_text("x")
    (folders.names / "loose").symlink_to("../../../etc")
    (folders.names / "self").symlink_to("self")
    assert [one.record.name for one in folders.every()] == ["web"]
    for name in ("other", "linked", "stolen", "loose", "self", "..", "/etc", "x" * 5000, "a/b", ""):
        assert call("inspect", name)[0] == 1


def test_a_machine_is_asked_where_its_supervisor_listens(
    call: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have had another environment than we have. A link that makes no sense counts for nothing."""
    with running("web") as supervisor:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "another"))
        assert call("kill", "-s", "HUP", "web")[0] == 1
        place = supervisor.folder.path / machine_folders.PLACE
        for target in ("/nowhere", "relative", f"/x/../{supervisor.folder.record.id}"):
            place.symlink_to(target)
            assert (
                MachineFolders().find("web").runtime == tmp_path / "another" / "vmtailor" / supervisor.folder.record.id
            )
            place.unlink()
        place.symlink_to(supervisor.folder.runtime)
        assert call("kill", "-s", "HUP", "web") == (0, "web\n", "")


def test_a_machine_whose_supervisor_was_killed_has_exited(call: Start) -> None:
    with running("web") as web:
        web.kill()
        assert lines(call("ps")[1])[1:] == []
        assert "Exited (137)" in call("ps", "-a")[1]
        state = json.loads(call("inspect", "web")[1])[0]["State"]
        assert (state["Status"], state["Running"], state["ExitCode"]) == ("exited", False, 137)
        assert state["Error"] == "its supervisor was killed"
        assert call("wait", "web")[:2] == (0, "137\n")
        for words in (("exec", "web", "ls"), ("kill", "web"), ("attach", "web")):
            code, _, err = call(*words)
            assert code == 1 and "the machine web is not running" in err and "vmtailor start web" in err
        assert call("stop", "web") == (0, "web\n", "")


# ---- names


def test_machines_are_found_by_name_by_identifier_and_by_its_beginning(call: Start) -> None:
    web = made("web")
    for word in ("web", web.record.id, web.record.id[:7]):
        assert json.loads(call("inspect", word)[1])[0]["Name"] == "/web"


def test_a_beginning_of_two_is_told(call: Start) -> None:
    made("one", id="ab" + "0" * 62)
    made("two", id="ab" + "1" * 62)
    code, _, err = call("kill", "ab")
    assert code == 1 and "is the beginning of 2 identifiers" in err


def test_an_unknown_name_is_told_with_near_ones_and_the_others_go_on(call: Start) -> None:
    with running("webserver") as web:
        code, out, err = call("kill", "-s", "HUP", "webservr", "webserver")
        assert (code, out) == (1, "webserver\n")
        assert lines(err) == [
            "error: no machine is called 'webservr'", "hint: did you mean webserver? vmtailor ps -a lists all machines"
        ]  # fmt: skip
        assert web.requests == [("kill", [("signal", "1")])]


@pytest.mark.parametrize(
    "words", [("logs",), ("stop",), ("kill",), ("wait",), ("rm",), ("inspect",), ("attach",), ("stats",), ("start",)]
)
def test_each_verb_says_that_a_name_is_unknown(call: Start, words: tuple[str, ...]) -> None:
    code, _, err = call(*words, "nobody")
    assert code == 1 and "no machine is called 'nobody'" in err


def test_names_are_taken_once(call: Start) -> None:
    web = made("web")  # no name here can begin an identifier, whose digits are a to f, too
    made("sql")
    code, _, err = call("rename", "sql", "web")
    assert code == 2 and f"the name 'web' is taken by the machine {web.record.short_id}" in err
    assert call("rename", "sql", "x")[0] == 2
    assert call("rename", "sql", "store") == (0, "", "")
    assert call("inspect", "sql")[0] == 1 and json.loads(call("inspect", "store")[1])[0]["Name"] == "/store"
    assert call("rename", "store", "store")[0] == 2


def test_a_link_that_leads_to_no_identifier_is_no_name(call: Start) -> None:
    made("web")
    (MachineFolders().names / "wet").symlink_to("/etc/passwd")
    code, out, err = call("inspect", "wet")
    assert (code, out) == (1, "[]\n") and "no machine is called 'wet'" in err and "did you mean web?" in err


def test_a_name_of_a_machine_that_is_gone_is_free() -> None:
    folders = MachineFolders()
    made("web")
    (folders.names / "gone").symlink_to("0" * 64)
    assert made("gone").record.name == "gone" and folders.find("gone").record.name == "gone"


def test_what_a_killed_command_left_goes_and_its_name_is_free(call: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `run` that was killed before it wrote the record, or an `rm` behind that; one that is just being made stays."""
    left = [made(name) for name in ("web", "db")]
    for one in left:
        (one.path / machine_folders.RECORD).unlink()
        one.runtime.mkdir(parents=True)
    code, _, err = call("rm", "web")
    assert code == 1 and "no machine is called 'web'" in err and "did you mean web" not in err
    with pytest.raises(UserInputError, match="taken"):
        made("web")
    monkeypatch.setattr(machine_removal, "LEFT_S", -1.0)
    with file_lock.tried(left[0].path / machine_folders.ALIVE):  # its supervisor still runs
        assert call("ps", "-aq")[1] == "" and left[0].path.is_dir() and not left[1].path.exists()
    assert made("web").record.name == "web"
    assert not left[0].path.exists() and not any(one.runtime.exists() for one in left)


def test_a_machine_without_a_name_gets_one() -> None:
    names = {made("").record.name for _ in range(20)}
    assert len(names) == 20 and all("_" in name for name in names)


# ---- stop, kill, wait, rm


def test_stop_tells_all_at_once_and_waits(call: Start) -> None:
    told = threading.Barrier(3, timeout=10)

    def stop(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        told.wait()  # none ends before all were told
        supervisor.end(0)
        caller.send("X", b"0 0 ")

    with (
        running("one", handlers={"stop": stop}) as one,
        running("two", handlers={"stop": stop}, stop_timeout_s=None),
        running("three", handlers={"stop": stop}) as three,
    ):
        code, out, err = call("stop", "one", "nobody", "two", "three")
        assert (code, out) == (1, "one\ntwo\nthree\n") and "nobody" in err
        assert one.requests == [("stop", [("grace-ms", "10000")])] == three.requests
    assert call("stop", "one") == (0, "one\n", "")


def test_how_long_and_by_what_a_machine_stops(call: Start) -> None:
    with running("web") as web:
        assert call("stop", "-t", "3", "-s", "QUIT", "web")[0] == 0
        assert web.requests == [("stop", [("grace-ms", "3000"), ("signal", "3")])]
    with running("forever") as web:
        assert call("stop", "--timeout", "-1", "forever")[0] == 0
        assert web.requests == [("stop", [("grace-ms", "-1")])]
    assert call("stop", "-s", "NOPE", "web")[0] == 2


def test_kill_sends_a_signal(call: Start) -> None:
    def refuse(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        caller.send("F", b"there is no such\x1b[2J process\n")

    with running("web") as web, running("odd", handlers={"kill": refuse}):
        assert call("kill", "web") == (0, "web\n", "")
        assert call("kill", "--signal", "SIGRTMIN+3", "web")[0] == 0
        assert web.requests == [("kill", [("signal", "9")]), ("kill", [("signal", "37")])]
        code, out, err = call("kill", "odd", "web")
        assert (code, out) == (1, "web\n") and "there is no such\\x1b[2J process" in err


def test_wait_prints_the_exit_status(call: Start) -> None:
    made("never")
    with running("web") as web:
        threading.Timer(0.2, web.end, (7,)).start()
        assert call("wait", "web") == (0, "7\n", "")
    assert call("wait", "web", "never")[1] == "7\n0\n"


def test_wait_for_a_machine_whose_supervisor_is_killed(call: Start) -> None:
    def killed(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        supervisor.kill()

    with running("web", handlers={"wait": killed}):
        assert call("wait", "web")[:2] == (0, "137\n")


def test_rm_removes_what_does_not_run(call: Start) -> None:
    with running("web") as web:
        code, out, err = call("rm", "web")
        assert (code, out) == (1, "") and "the machine web is running" in err
        web.end(0)
        assert call("rm", "-v", "web") == (0, "web\n", "")
        assert not web.folder.path.exists() and not web.folder.runtime.exists()
        assert list(MachineFolders().names.iterdir()) == []


def test_rm_does_not_mind_who_looks_at_the_machine(call: Start) -> None:
    """`ps` holds the lock for a moment to see whether another has it."""
    folder = made("web")
    (folder.path / machine_folders.ALIVE).touch()
    look = (folder.path / machine_folders.ALIVE).open()
    fcntl.flock(look, fcntl.LOCK_SH)
    threading.Timer(0.05, look.close).start()
    assert MachineFolders().remove(folder) and not folder.path.exists()


def test_rm_with_force_ends_it(call: Start) -> None:
    with running("web") as web:
        assert call("rm", "-f", "web") == (0, "web\n", "")
        assert web.requests == [("stop", [("grace-ms", "0")])] and not web.folder.path.exists()


def test_a_machine_with_rm_goes_by_itself(call: Start) -> None:
    with running("web", remove=True) as web:
        assert len(lines(call("ps", "-q")[1])) == 1
        web.end(4)
        assert call("ps", "-aq")[1] == "" and not web.folder.path.exists()
    with running("failed", remove=True) as failed:
        failed.write_state("created", exit=127, started_ns=1, finished_ns=2)
        failed.kill()
    made("not-yet", remove=True)
    assert len(lines(call("ps", "-aq")[1])) == 1


def test_a_request_that_the_supervisor_answers_with_nonsense(call: Start) -> None:
    def nonsense(data: bytes) -> dict[str, object]:
        return {"kill": lambda supervisor, caller, pairs: caller.send_raw(data)}

    for data in (b"", b"R", b"Z\0\0\0\0", b"R\xff\xff\xff\xff", b"R\x05\0\0\0abc", b"\x1b[2J\x1b[2J"):
        with running("web", handlers=nonsense(data)) as web:  # type: ignore[arg-type]
            code, out, err = call("kill", "web")
            assert code == 1 and out == "" and "the machine's supervisor" in err and "\x1b" not in err
            web.kill()
            call("rm", "web")


# ---- inspect and stats


def test_inspect_has_dockers_fields(call: Start) -> None:
    check = HealthCheck(("true",))
    ports = (PublishedPort("127.0.0.1", 8080, 80), PublishedPort("127.0.0.1", 5353, 53, "udp"))
    with running("web", ports=ports, health=check, restart="on-failure:3", env=(("A", "1"),)) as web:
        web.write_state("running", pid=4, started_ns=1_700_000_000_000_000_001, health="healthy", restarts=2)
        found = json.loads(call("inspect", "web")[1])[0]
        assert found["State"] == {
            "Status": "running", "Running": True, "Paused": False, "Restarting": False, "OOMKilled": False,
            "Dead": False, "Pid": 4, "ExitCode": 0, "Error": "", "StartedAt": "2023-11-14T22:13:20.000000001Z",
            "FinishedAt": "0001-01-01T00:00:00Z", "Health": {"Status": "healthy"},
        }  # fmt: skip
        assert found["RestartCount"] == 2 and found["Config"]["Env"] == ["A=1"]
        assert found["HostConfig"]["RestartPolicy"] == {"Name": "on-failure", "MaximumRetryCount": 3}
        assert found["NetworkSettings"]["Ports"]["53/udp"] == [{"HostIp": "127.0.0.1", "HostPort": "5353"}]
        assert call("inspect", "-f", "{{.State.Running}} {{.Path}} {{.Args}}", "web")[1] == "true /server [--port 80]\n"
        assert call("inspect", "-f", "{{json .Config.Labels}}", "web")[1] == "{}\n"
        template = '{{index .NetworkSettings.Ports "80/tcp"}} {{index .Config.Labels "none"}}.{{index .Id "x"}}'
        assert call("inspect", "-f", template, "web")[1] == "[map[HostIp:127.0.0.1 HostPort:8080]] .\n"
        assert "(healthy)" in call("ps")[1]
        web.write_state("exited", exit=137, error=f"the machine's 64 MiB {kept_machine.USED_UP} 'x'")
    assert call("inspect", "-f", "{{.State.OOMKilled}} {{.HostConfig.ReadonlyRootfs}}", "web")[1] == "true false\n"


def test_inspect_of_some_that_are_not_there(call: Start) -> None:
    made("web")
    code, out, err = call("inspect", "nobody", "web")
    assert code == 1 and [one["Name"] for one in json.loads(out)] == ["/web"] and "nobody" in err
    assert call("inspect", "-f", "{{.Nope}}", "web")[0] == 1


def test_stats_of_one_second(call: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmtailor.cli.stats._LOOK_S", 0.05)
    made("still")
    with running("web"):
        code, out, err = call("stats", "--no-stream")
        assert (code, err) == (0, "")
        head, row = lines(out)
        titles = ["MACHINE ID", "NAME", "CPU %", "MEM USAGE / LIMIT", "MEM %", "HOST MEM", "PIDS"]
        assert re.split(" {3,}", head) == titles
        assert row.split()[1:2] == ["web"] and row.split()[3:] == ["20MiB", "/", "64MiB", "31.25%", "100MiB", "3"]
        assert float(json.loads(call("stats", "--no-stream", "--format", "json")[1])["CPUPerc"].rstrip("%")) > 50
        code, out, err = call("stats", "--no-stream", "web", "still")
        assert code == 1 and "web" in out and "the machine still is not running" in err


@pytest.mark.attack
def test_stats_that_make_no_sense(call: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmtailor.cli.stats._LOOK_S", 0.01)

    def odd(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        caller.send("R", b"cpu-ns -5\0memory \x1b[2J\0memory-used 9" + b"9" * 40 + b"\0processes \xb2\0\0\0x")

    with running("web", handlers={"stats": odd}):
        code, out, _ = call("stats", "--no-stream")
        assert code == 0 and "-- / 64MiB" in out and "\x1b" not in out


# ---- logs


def entry(text: str, second: int = 0, stream: str = "stdout") -> str:
    return json.dumps({"log": text, "stream": stream, "time": f"2026-01-31T12:00:{second:02d}.5Z"})


def test_logs_go_to_the_streams_that_they_came_from(call: Start) -> None:
    folder = made("web")
    log_lines(folder, entry("a\n"), entry("\x1b[1mb\n", 1, "stderr"), entry("c", 2), entry("d\n", 3))
    log_lines(folder, entry("old\n"), name="log.1")
    log_lines(folder, entry("oldest\n"), name="log.2")
    assert call("logs", "web") == (0, "oldest\nold\na\ncd\n", "\x1b[1mb\n")
    assert call("logs", "--tail", "2", "web")[1] == "cd\n"
    assert call("logs", "-n", "0", "web")[1] == ""
    assert call("logs", "-t", "-n", "3", "web")[1:] == (
        "2026-01-31T12:00:02.5Z cd\n", "2026-01-31T12:00:01.5Z \x1b[1mb\n"
    )  # fmt: skip
    assert call("logs", "--since", "2026-01-31T12:00:02Z", "web")[1] == "cd\n"
    assert call("logs", "--until", "2026-01-31T13:00:01+01:00", "web")[1] == "oldest\nold\na\n"
    assert call("logs", "--since", "5m", "web")[1] == ""
    for wrong in (("--tail", "x"), ("--since", "yesterday"), ("--until", "2026-13-01"), ("--since", "")):
        assert call("logs", *wrong, "web")[0] == 2


def test_logs_are_followed_over_rotations_to_the_end(call: Start) -> None:
    def write() -> None:
        time.sleep(0.3)
        for number in range(3, 9):
            if number % 2:
                (web.folder.path / "log.1").replace(web.folder.path / "log.2")
                (web.folder.path / "log").replace(web.folder.path / "log.1")
            with (web.folder.path / "log").open("a") as log:
                log.write(entry(f"{number}\n") + "\n")
            time.sleep(0.15)
        web.end(0)

    with running("web") as web:
        log_lines(web.folder, entry("1\n"), name="log.1")
        log_lines(web.folder, entry("2\n"))
        writer = threading.Thread(target=write)
        writer.start()
        assert call("logs", "-f", "web") == (0, "".join(f"{n}\n" for n in range(1, 9)), "")
        writer.join()


@pytest.mark.attack
def test_logs_that_make_no_sense(call: Start, tmp_path: Path) -> None:
    folder = made("web")
    long = json.dumps({"log": "x" * 3_000_000})
    (folder.path / "log").write_bytes(
        b"\xff\xfe\n{}\n[1]\n" + b"[" * 100_000 + b"\n" + long.encode() + b"\n"
        b'{"log": 3}\n{"log": "\\ud800"}\n{"log": "y\\n", "time": "9999-99-99T99:99:99Z"}\n{"log": "half'
    )  # fmt: skip
    (folder.path / "log.1").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text(entry("secret\n"))
    code, out, err = call("logs", "-t", "web")
    assert (code, err) == (0, "") and out == " y\n"
