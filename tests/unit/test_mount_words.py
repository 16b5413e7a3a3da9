# SPDX-License-Identifier: Apache-2.0
"""`run -v` and `--mount`, read as docker spells them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.model.guest_mounts import GuestMount, MountKind
from vmtailor.pipeline.mount_words import WantedMount, parse_mounts, parse_volumes


def short(wanted: WantedMount) -> tuple[str, str, str, bool]:
    return wanted.kind.name, wanted.source, wanted.target, wanted.read_only


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/srv:/data", ("FOLDER", "/srv", "/data", False)),
        ("/srv:/data:ro", ("FOLDER", "/srv", "/data", True)),
        ("./here:/data:rw,z", ("FOLDER", "here", "/data", False)),
        ("..:/data", ("FOLDER", "..", "/data", False)),
        ("/a b:/data/../c d/", ("FOLDER", "/a b", "/c d", False)),
        ("/srv://data:cached", ("FOLDER", "/srv", "/data", False)),
        ("data:/var/lib/x", ("VOLUME", "data", "/var/lib/x", False)),
        ("my.vol-1:/x:ro,nocopy", ("VOLUME", "my.vol-1", "/x", True)),
        ("/var/lib/x", ("PLACE", "", "/var/lib/x", False)),
    ],
)
def test_v(text: str, found: tuple[str, str, str, bool]) -> None:
    (wanted,) = parse_volumes([text])
    assert short(wanted) == found
    assert wanted.as_image == ("nocopy" not in text)
    assert wanted.made == (found[0] == "FOLDER")  # docker makes what -v names


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not a mount"),
        ("/a:", "not a mount"),
        (":/a", "not a mount"),
        ("/a:/b:ro:x", "not a mount"),
        ("/a:b", "not an absolute path"),
        ("data", "not an absolute path"),
        ("/a:/", "root cannot be replaced"),
        ("/a:/b/..", "root cannot be replaced"),
        ("/a://..//", "root cannot be replaced"),
        ("/a:/b:rshared", "do not pass"),
        ("/a:/b:nodev", "not an option"),
        ("/a:/b:ro,rw", "both"),
        ("c:/b", "not the name of a volume"),
        ("a/b:/c", "not the name of a volume"),
        ("-x:/c", "not the name of a volume"),
        ("a\0b:/c", "not a mount"),
        ("\x1b[31m:/c", "not the name of a volume"),
    ],
)
def test_what_v_refuses(text: str, what: str) -> None:
    with pytest.raises(UserInputError, match=what) as caught:
        parse_volumes([text])
    assert caught.value.hint and caught.value.message.isprintable()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("type=bind,source=/srv,target=/data", ("FOLDER", "/srv", "/data", False)),
        ("type=bind,src=/srv,dst=/data,readonly", ("FOLDER", "/srv", "/data", True)),
        ("type=bind,src=/srv,destination=/data,ro=false", ("FOLDER", "/srv", "/data", False)),
        ('type=bind,"src=/a,b",dst=/data,bind-propagation=rprivate', ("FOLDER", "/a,b", "/data", False)),
        ("src=data,dst=/data", ("VOLUME", "data", "/data", False)),
        ("type=volume,src=data,dst=/data,volume-nocopy", ("VOLUME", "data", "/data", False)),
        ("type=volume,dst=/data,volume-driver=local", ("PLACE", "", "/data", False)),
        ("type=tmpfs,dst=/run,tmpfs-size=64m,tmpfs-mode=1777", ("MEMORY", "", "/run", False)),
    ],
)
def test_mount(text: str, found: tuple[str, str, str, bool]) -> None:
    (wanted,) = parse_mounts([text])
    assert short(wanted) == found
    assert wanted.as_image == ("nocopy" not in text) and not wanted.made
    assert wanted.options == (("size=64m", "mode=1777") if found[0] == "MEMORY" else ())


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no target"),
        (",", "'' is not known"),
        ("type=nfs,dst=/a", "no type 'nfs'"),
        ("type=bind,src=/a", "no target"),
        ("type=bind,src=data,dst=/a", "not a path"),
        ("type=bind,src=/a,dst=/b,bind-propagation=shared", "do not pass"),
        ("type=bind,src=/a,dst=/b,volume-nocopy", "is for type=volume"),
        ("type=bind,src=/a,dst=/b,tmpfs-size=1", "is for type=tmpfs"),
        ("type=volume,src=x,dst=/b", "not the name of a volume"),
        ("type=volume,src=xy,dst=/b,volume-driver=nfs", "no drivers"),
        ("type=tmpfs,src=/a,dst=/b", "no source"),
        ("type=tmpfs,dst=/b,tmpfs-size=1;x", "no size"),
        ("type=tmpfs,dst=/b,tmpfs-mode=999", "no mode"),
        ("type=tmpfs,dst=/b,target", "needs a value"),
        ("type=bind,src=/a,dst=/b,ro=perhaps", "neither true nor false"),
        ("type=bind,src=/a,dst=/b,colour=red", "'colour' is not known"),
        ('type=bind,"src=/a', "not a line of fields"),
    ],
)
def test_what_mount_refuses(text: str, what: str) -> None:
    with pytest.raises(UserInputError, match=what) as caught:
        parse_mounts([text])
    assert caught.value.hint


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (parse_volumes, parse_mounts):
        with contextlib.suppress(UserInputError):
            (wanted,) = read([text])
            assert wanted.target.startswith("/") and wanted.target != "/" and "\0" not in wanted.target
            assert "/../" not in f"{wanted.target}/"


def test_inits_record_ends_with_the_place_whatever_is_in_it() -> None:
    order = GuestMount(kind=MountKind.FOLDER, source="vtfs0", target="/a b, c", read_only=True, single_file=True)
    assert order.record == "virtiofs ro,file vtfs0 /a b, c"
    memory = GuestMount(kind=MountKind.MEMORY, target="/run", options=("size=1m", "mode=700"))
    assert memory.record == "tmpfs rw,size=1m,mode=700 - /run"
    volume = GuestMount(kind=MountKind.VOLUME, source="2", target="/var", as_image=True)
    assert volume.record == "ext4 rw,copy 2 /var"
