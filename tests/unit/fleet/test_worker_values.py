# SPDX-License-Identifier: Apache-2.0
"""Values that a list only names: found in a worker's folder and environment, and nowhere else."""

from pathlib import Path

import pytest

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.fleet.model.entry import FleetEntry, ValueFrom, Variable
from vmtailor.fleet.model.orders import Job, Order
from vmtailor.fleet.run import entry_fit, worker_values
from vmtailor.fleet.run.entry_fit import Variables
from vmtailor.model.fit_part import FitPart

CANARY = "canary-7f3a91"


def entry(*variables: Variable) -> FleetEntry:
    return FleetEntry(name="web", reference="oci:web", environment=variables)


def found(folder: Path, *variables: Variable, **own: str) -> dict[str, str]:
    return worker_values.found(entry(*variables), {worker_values.FOLDER: str(folder), **own})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    secret = tmp_path / "secrets" / "db"
    (secret / "..data").mkdir(parents=True)
    (secret / "..data" / "password").write_text(f"{CANARY}\n")
    (secret / "password").symlink_to("..data/password")  # as Kubernetes mounts it
    (secret / "user").write_text("web")
    (tmp_path / "secrets" / "web.env").write_text(f"# as docker reads it\nTOKEN={CANARY}\nMODE=a b\n")
    (tmp_path / "outside").write_text(CANARY)
    return tmp_path / "secrets"


def test_keys_whole_secrets_and_files_of_variables_are_found(folder: Path) -> None:
    one = Variable("PASSWORD", ValueFrom.SECRET, "db, key password")
    assert found(folder, one) == {"PASSWORD": CANARY}
    assert found(folder, Variable("DB_*", ValueFrom.SECRET, "db")) == {"DB_password": CANARY, "DB_user": "web"}
    in_file = {"TOKEN": CANARY, "MODE": "a b"}
    for place in ("web.env", "./web.env", "/srv/app/web.env"):
        assert found(folder, Variable("*", ValueFrom.FILE, place)) == in_file
    (folder / "srv" / "app").mkdir(parents=True)
    (folder / "srv" / "app" / "web.env").write_text("TOKEN=other\n")
    assert found(folder, Variable("*", ValueFrom.FILE, "/srv/app/web.env")) == {"TOKEN": "other"}


def test_the_workers_own_variable_of_that_name_wins_and_no_other_one_is_read(folder: Path) -> None:
    one = Variable("PASSWORD", ValueFrom.SECRET, "db, key password")
    assert found(folder, one, VMTAILOR_SECRET_PASSWORD="own") == {"PASSWORD": "own"}
    with pytest.raises(HostError):
        worker_values.found(entry(Variable("HOME", ValueFrom.SECRET, "gone, key x")), {"HOME": "/root"})


def test_what_the_list_has_or_only_a_cluster_knows_or_may_lack_is_not_looked_up(folder: Path) -> None:
    assert not found(
        folder,
        Variable("MODE", ValueFrom.LIST),
        Variable("POD", ValueFrom.RUNNING, "metadata.name"),
        Variable("MAYBE", ValueFrom.CONFIG_MAP, "gone, key x", optional=True),
    )


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        (Variable("PASSWORD", ValueFrom.SECRET, "db, key gone"), "web: PASSWORD (db, key gone)"),
        (Variable("*", ValueFrom.CONFIG_MAP, "settings"), "web: the variables of config map settings"),
        (Variable("X", ValueFrom.SECRET, "../outside"), "web: X (../outside)"),
        (Variable("X", ValueFrom.SECRET, "db, key ../../outside"), "web: X"),
        (Variable("*", ValueFrom.FILE, "/.."), "web: the variables of file /.."),
    ],
)
def test_a_missing_value_is_one_sentence_with_its_entry_and_place(folder: Path, variable: Variable, says: str) -> None:
    with pytest.raises(HostError) as refused:
        found(folder, variable)
    assert refused.value.message.startswith(says), refused.value.message
    assert "--secrets" in refused.value.hint
    assert CANARY not in refused.value.message + refused.value.hint


def test_a_folder_of_secrets_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="no folder"):
        worker_values.required(tmp_path / "gone")


def test_options_of_a_fit_have_the_values_of_the_list_and_names_of_secrets(tmp_path: Path) -> None:
    order = Order(Job.FIT, FitPart.TRACE, entry())
    options = entry_fit.options_of(order, tmp_path, None, Variables((("MODE", "a"),), ("PASSWORD",)))
    assert (options.env, options.secret_env) == ((("MODE", "a"),), ("PASSWORD",))
    bare = entry_fit.options_of(order, tmp_path, None)
    assert not bare.asked & {"env", "secret_env"}
