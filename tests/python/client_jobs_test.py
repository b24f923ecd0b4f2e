# SPDX-License-Identifier: Apache-2.0
"""Jobs in tessera.client."""

import uuid

import pytest
import torch
import torch.distributed.checkpoint as dcp

import tessera
import tessera.client
from daemon import Daemon
from daemon import Proxy


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    process = Daemon(tmp_path_factory.mktemp("daemon"))
    state = {"model": {"w": torch.arange(40.0).reshape(8, 5)}, "step": 7}
    dcp.save(state, checkpoint_id=process.root / "c")
    yield process
    process.stop()


@pytest.fixture
def client(daemon):
    with daemon.client() as client:
        yield client


def test_a_conversion_is_watched_to_its_end(daemon, client):
    job = client.convert(
        daemon.root / "c",
        daemon.root / "m.safetensors",
        casts="bf16",
        include=["model.*"],
        drop_non_tensors=True,
        memory_bytes="64MiB",
    )
    assert job.name.startswith("operations/")
    seen = list(job.watch())
    last = seen[-1]
    assert last.done and last.state == "succeeded" and last.kind == "convert"
    assert last.source == str(daemon.root / "c")
    assert last.done_bytes == last.total_bytes > 0
    assert last.memory_bytes == 64 << 20
    assert last.create_time <= last.start_time <= last.end_time
    result = job.wait()
    assert result.format == "safetensors"
    assert list(result.files) == ["m.safetensors"]
    assert result.num_tensors == 1
    assert result.elapsed_seconds > 0
    assert result.message.source_check.bytes_checked > 0
    assert tessera.open(daemon.root / "m.safetensors")["model.w"].dtype == (
        "bfloat16"
    )
    assert list(job.watch()) == [job.status]


def test_meshes_and_plans(daemon, client):
    plan = client.reshard(
        daemon.root / "c",
        daemon.root / "r",
        mesh={"replicate": 2, "shard": 2},
        validate_only=True,
    )
    assert plan.name == "" and plan.status.done and plan.status.kind == ""
    assert len(plan.wait().files) == 4
    assert not (daemon.root / "r").exists()
    job = client.reshard(
        daemon.root / "c", daemon.root / "r", mesh={"shard": 4}
    )
    assert len(job.wait().files) == 4
    assert tessera.diff(daemon.root / "c", daemon.root / "r")["equal"]
    job = client.consolidate(
        daemon.root / "r", daemon.root / "f.pt", format="pt"
    )
    assert job.wait().format == "pt"


def test_verify_reports_what_is_wrong(daemon, client):
    report = client.verify(daemon.root / "c").wait()
    assert report.ok and report.num_tensors == 1
    dcp.save({"w": torch.arange(1000.0)}, checkpoint_id=daemon.root / "bad")
    (file,) = (daemon.root / "bad").glob("*.distcp")
    content = bytearray(file.read_bytes())
    at = content.index(torch.arange(1000.0).numpy().tobytes())
    content[at + 400] ^= 1
    file.write_bytes(content)
    report = client.verify(daemon.root / "bad").wait()
    assert not report.ok
    assert report.findings[0].name == "w"
    assert report.findings[0].file == file.name


def test_jobs_are_found_and_deleted(daemon, client):
    job = client.verify(daemon.root / "c")
    job.wait()
    assert client.job(job.name).status.state == "succeeded"
    assert job.name in [each.name for each in client.jobs("kind = VERIFY")]
    assert client.jobs("kind = CONVERT AND kind = VERIFY") == []
    job.delete()
    with pytest.raises(tessera.NotFoundError) as raised:
        job.refresh()
    assert raised.value.reason == "JOB_NOT_FOUND"


def test_a_list_has_all_pages(daemon, client):
    names = {client.verify(daemon.root / "c").name for _ in range(130)}
    for name in names:
        client.job(name).wait()
    assert names <= {job.name for job in client.jobs()}


def test_a_failed_job_raises_how_it_failed(daemon, client):
    (daemon.root / "there.pt").write_bytes(b"")
    job = client.consolidate(daemon.root / "nothing", daemon.root / "n.pt")
    (status,) = (each for each in job.watch() if each.done)
    assert status.state == "failed"
    assert isinstance(status.error, tessera.NotFoundError)
    with pytest.raises(tessera.NotFoundError) as raised:
        job.wait()
    assert raised.value.reason == "CHECKPOINT_NOT_FOUND"
    assert raised.value.path == str(daemon.root / "nothing")


def test_a_request_id_starts_a_job_once(daemon, client):
    id_ = str(uuid.uuid4())
    path = daemon.root / "c"
    first = client.verify(path, request_id=id_)
    assert client.verify(path, request_id=id_).name == first.name
    with pytest.raises(tessera.AlreadyExistsError) as raised:
        client.verify(path, request_id=id_, sample_percent=50)
    assert raised.value.reason == "REQUEST_ID_REUSED"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"mesh": {"shard": 0}}, "mesh.axes[0].size"),
        ({"mesh": {"shard": "two"}}, "mesh"),
        ({"nothing": 1}, "nothing"),
        ({"casts": 3}, "casts"),
        ({"memory_bytes": "1TiB"}, "options.memory_bytes"),
        ({"format": "hdf5"}, "format"),
        ({"map": {"nothing": 1}}, "map"),
        ({"map": {"builtin": "llama"}}, "source.map.from_side"),
        ({"options": {"memory_bytes": -1}}, "options"),
    ],
)
def test_the_field_that_is_wrong_is_named(daemon, client, fields, field):
    with pytest.raises(tessera.InvalidArgumentError) as raised:
        client.convert(daemon.root / "c", daemon.root / "x", **fields)
    assert raised.value.field == field
    assert not (daemon.root / "x").exists()


def test_a_job_is_cancelled(daemon, client):
    dcp.save({"w": torch.ones(16 << 20)}, checkpoint_id=daemon.root / "long")
    job = client.convert(daemon.root / "long", daemon.root / "long.pt")
    job.cancel()
    assert list(job.watch())[-1].done
    # It may have finished first.
    if job.status.state == "cancelled":
        with pytest.raises(tessera.CancelledError):
            job.wait()
        assert not (daemon.root / "long.pt").exists()
    else:
        assert job.wait().num_tensors == 1


def test_a_watch_and_a_submission_survive_a_broken_connection(daemon):
    proxy = Proxy(daemon.address, cuts=[50, 200, 400])
    try:
        with tessera.client.Client(proxy.address) as client:
            job = client.verify(daemon.root / "c")
            assert list(job.watch())[-1].state == "succeeded"
        assert proxy.num_connections > 2
        matching = [
            each for each in daemon.client().jobs() if each.name == job.name
        ]
        assert len(matching) == 1
    finally:
        proxy.close()


def test_losses_of_a_source_are_told(daemon, client):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    folder = daemon.root / "numbered"
    folder.mkdir()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    torch.save(optimizer.state_dict(), folder / "optimizer.bin")
    with pytest.warns(tessera.LossWarning, match="cannot be told apart"):
        assert len(client.open(folder).warnings) == 1
    assert len(client.convert(folder, daemon.root / "n").wait().warnings) == 1
    assert len(client.verify(folder).wait().warnings) == 1
    named = client.convert(
        folder,
        daemon.root / "named",
        dialect={"optimizer_in_model_order": True},
    ).wait()
    assert named.warnings == []
