# SPDX-License-Identifier: Apache-2.0
"""What starts a fleet elsewhere: Kubernetes' own schemas, a shell and rules of each form hold for it."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import utils

from vmtailor.base.errors import UserInputError
from vmtailor.fleet.cli import manifest_command
from vmtailor.fleet.cli.fleet_command import TAKES, FleetAction
from vmtailor.fleet.manifests import kubernetes_jobs, slurm_script, systemd_units
from vmtailor.fleet.manifests.manifest_wishes import ManifestWishes

ODD = ManifestWishes(
    name="x-1",
    image="docker://10.0.0.1:5000/v/vmtailor@sha256:" + "a" * 64,
    workers=200,
    cpus=3,
    memory_bytes=(1 << 30) + 1,
    disk_bytes=10**10,
    limit_s=90.5,
    slots=2,
    certificates="/srv/a-b_c/d",
    cache_url="s3://bucket/a:b@c,d~e=f",
)
WISHES = pytest.mark.parametrize("wishes", [ManifestWishes(), ODD], ids=["usual", "odd"])


def documents(wishes: ManifestWishes) -> list[dict[str, Any]]:
    ((name, text),) = kubernetes_jobs.files(wishes).items()
    assert name == f"{wishes.name}.yaml"
    return list(yaml.safe_load_all(text))


@WISHES
def test_kubernetes_takes_each_object(wishes: ManifestWishes) -> None:
    for one in documents(wishes):
        utils.validate(one, utils.latest_version(), strict=True)
        assert len(one["metadata"]["name"]) <= 63


def test_jobs_have_secrets_and_limits() -> None:
    service, policy, scheduler, workers = documents(ODD)
    for job, pods in ((scheduler, 1), (workers, 200)):
        assert job["spec"]["activeDeadlineSeconds"] == 90
        assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (pods, pods)
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert pod["volumes"][0]["secret"] == {"secretName": job["metadata"]["name"], "defaultMode": 0o400}
        assert pod["automountServiceAccountToken"] is False
    (container,) = workers["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "10.0.0.1:5000/v/vmtailor@sha256:" + "a" * 64
    assert container["resources"]["limits"] == {"cpu": "3", "memory": str((1 << 30) + 1)}
    assert container["args"] == [
        "fleet",
        "worker",
        "tls://x-1:8786",
        "--certificates",
        "/certificates",
        "--slots",
        "2",
        "--remote-cache",
        "s3://bucket/a:b@c,d~e=f",
    ]
    claim = workers["spec"]["template"]["spec"]["volumes"][1]["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert claim["resources"]["requests"]["storage"] == str(10**10)
    assert service["spec"]["selector"].items() <= scheduler["spec"]["template"]["metadata"]["labels"].items()
    for job in (scheduler, workers):
        assert (
            policy["spec"]["podSelector"]["matchLabels"].items()
            <= job["spec"]["template"]["metadata"]["labels"].items()
        )


@WISHES
def test_a_shell_and_sbatch_read_the_script(wishes: ManifestWishes, tmp_path: Path) -> None:
    ((name, text),) = slurm_script.files(wishes).items()
    path = tmp_path / name
    path.write_text(text)
    for shell in ("sh", "bash"):
        subprocess.run([shell, "-n", path], check=True, timeout=10)
    lines = text.splitlines()
    assert lines[0] == "#!/bin/sh"
    asked = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert all(lines.index(f"#SBATCH {one}") < first for one in asked)  # sbatch reads none behind the first command
    assert all(re.fullmatch(r"--[a-z-]+=[A-Za-z0-9%.-]+", one) for one in asked)
    assert f"--array=0-{wishes.workers}" in asked
    if wishes is ODD:
        assert {"--mem=1025M", "--tmp=9537M", "--time=2", "--cpus-per-task=3"} <= set(asked)


def test_the_script_starts_one_scheduler_and_workers_that_wait_for_it(tmp_path: Path) -> None:
    ((_, text),) = slurm_script.files(ODD).items()
    programs = tmp_path / "bin"
    programs.mkdir()
    said = tmp_path / "said"
    (programs / "apptainer").write_text(f'#!/bin/sh\necho "$@" >>{said}\n')
    (programs / "hostname").write_text("#!/bin/sh\necho node1.example\n")
    (programs / "sleep").write_text(f"#!/bin/sh\necho tls://node1.example:8786 >{tmp_path}/x-1.address\n")
    for one in programs.iterdir():
        one.chmod(0o755)
    script = tmp_path / "x.sh"
    script.write_text(text)
    for task in (0, 1):
        subprocess.run(
            ["sh", script],
            check=True,
            timeout=20,
            env={
                "PATH": f"{programs}:/usr/bin:/bin",
                "SLURM_SUBMIT_DIR": str(tmp_path),
                "SLURM_ARRAY_TASK_ID": str(task),
                "TMPDIR": str(tmp_path),
            },
        )
    scheduler, worker = (shlex.split(line) for line in said.read_text().splitlines())
    assert scheduler[-6:] == ["fleet", "scheduler", "--listen", "tls://0.0.0.0:8786", "--certificates", "/certificates"]
    assert worker[worker.index("fleet") :] == ODD.worker("tls://node1.example:8786", "/certificates")
    assert "/srv/a-b_c/d:/certificates:ro" in worker
    left = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert left == ["bin"]  # no task leaves its cache behind


@WISHES
def test_units_say_what_they_may_use(wishes: ManifestWishes) -> None:
    files = systemd_units.files(wishes)
    assert list(files) == [f"{wishes.name}-scheduler.service", f"{wishes.name}-worker@.service"]
    for text in files.values():
        rows = [line for line in text.splitlines() if line and not line.startswith(("#", "["))]
        assert all(re.fullmatch(r"[A-Z][A-Za-z]+=\S.*", row) for row in rows)
        keys = {row.partition("=")[0] for row in rows}
        assert {"LoadCredential", "MemoryMax", "CPUQuota", "Restart"} <= keys
        assert text.count(f"LoadCredential=ca.pem:{wishes.certificates}/ca.pem") == 1
        assert "ca-key" not in text
        assert f"timeout --kill-after=60 {round(wishes.limit_s)} " in text
    worker = files[f"{wishes.name}-worker@.service"]
    assert " ".join(wishes.worker("tls://%i:8786", "/certificates")) in worker
    assert "cache --max-size " in worker


@pytest.mark.attack
@pytest.mark.parametrize(
    ("wishes", "says"),
    [
        ({"name": "A"}, "cannot begin the names"),
        ({"name": "a\nb"}, "cannot begin"),
        ({"name": "a" * 41}, "cannot begin"),
        ({"name": "a-"}, "cannot begin"),
        ({"image": "vmtailor"}, "no image in a registry"),
        ({"image": "a/b c"}, "no image"),
        ({"image": "a/$(x)"}, "no image"),
        ({"certificates": "here"}, "no folder"),
        ({"certificates": "/a b"}, "no folder"),
        ({"certificates": "/a%i"}, "no folder"),
        ({"certificates": "/a\n#"}, "no folder"),
        ({"cache_url": "bucket"}, "no URL"),
        ({"cache_url": "s3://a$(x)"}, "no URL"),
        ({"cache_url": "s3://a b"}, "no URL"),
        ({"cache_url": "s3://a'b"}, "no URL"),
        ({"limit_s": 1}, "from a minute to 30 days"),
        ({"limit_s": 1e9}, "from a minute to 30 days"),
    ],
)
def test_what_would_be_read_as_something_else_is_refused(wishes: dict[str, Any], says: str) -> None:
    with pytest.raises(UserInputError, match=says):
        ManifestWishes(**wishes)


def test_files_are_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest_command.show("systemd", ManifestWishes(), tmp_path / "units")
    assert len(list((tmp_path / "units").iterdir())) == 2
    with pytest.raises(UserInputError, match="is there"):
        manifest_command.show("systemd", ManifestWishes(), tmp_path / "units")
    with pytest.raises(UserInputError, match="no manifest of 'kubernets'") as caught:
        manifest_command.show("kubernets", ManifestWishes(), None)
    assert "did you mean kubernetes?" in caught.value.hint
    capsys.readouterr()
    manifest_command.show("slurm", ManifestWishes(), None)
    assert capsys.readouterr().out == slurm_script.files(ManifestWishes())["vmtailor-fleet.sh"]


@WISHES
def test_words_are_those_of_the_command_line(wishes: ManifestWishes) -> None:
    for words in (wishes.scheduler("tls://0.0.0.0:8786", "/c"), wishes.worker("tls://s:8786", "/c")):
        assert words[0] == "fleet"
        _, takes = TAKES[FleetAction(words[1])]
        assert {word for word in words if word.startswith("--")} <= takes
