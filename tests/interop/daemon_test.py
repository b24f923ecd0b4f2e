# SPDX-License-Identifier: Apache-2.0
"""A Python client of dcp-server, made from the .proto files: it looks into
checkpoints, has them converted, and reads tensors; PyTorch is the judge."""

import itertools
import re
import uuid

import grpc
import judge
import torch
from conversions import boxes_of, without_empty
from daemon import (
    PROTO,
    TOKENS,
    Daemon,
    crc32c,
    expect_refused,
    make_stubs,
)
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from harness import Suite, expect, expect_no_lines, make_references
from torch.distributed.tensor import Replicate, Shard
from values import det, raw_bytes

CASES = ("single_dtypes", "fsdp_ws3", "hsdp_2x2", "pt_zoo")
# The minimum, so that small tensors take several messages.
CHUNK_BYTES = 1024
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


class Client:
    """The stubs of a channel, and what every case asks of them."""

    def __init__(self, channel):
        # Made by make_stubs, so not to be imported before it.
        from google.longrunning import (
            operations_proto_pb2,
            operations_proto_pb2_grpc,
        )
        from tessera.v1 import (
            checkpoint_service_pb2,
            checkpoint_service_pb2_grpc,
            job_service_pb2,
            job_service_pb2_grpc,
        )

        self.api = checkpoint_service_pb2
        self.jobs_api = job_service_pb2
        self.operations_api = operations_proto_pb2
        self.channel = channel
        self.checkpoints = checkpoint_service_pb2_grpc.CheckpointServiceStub(
            channel
        )
        self.jobs = job_service_pb2_grpc.JobServiceStub(channel)
        self.operations = operations_proto_pb2_grpc.OperationsStub(channel)

    def inspect(self, path, **fields):
        return self.checkpoints.Inspect(
            self.api.InspectRequest(source={"path": str(path)}, **fields)
        )

    def convert(self, source, target, **fields):
        return self.jobs.Convert(
            self.jobs_api.ConvertRequest(
                source={"path": str(source)},
                destination={"path": str(target)},
                **fields,
            )
        )

    def wait(self, job):
        while not job.done:
            job = self.operations.WaitOperation(
                self.operations_api.WaitOperationRequest(name=job.name)
            )
        return job

    def metadata(self, job):
        metadata = self.jobs_api.JobMetadata()
        expect(job.metadata.Unpack(metadata), f"metadata {job.metadata}")
        return metadata

    def stream(self, path, **fields):
        return self.checkpoints.ReadTensors(
            self.api.ReadTensorsRequest(source={"path": str(path)}, **fields)
        )

    def read(self, path, **fields):
        """(parts, the bytes of each, etag), with everything checked that the
        protocol promises."""
        parts, data, etag, more = [], [], None, True
        for message in self.stream(path, **fields):
            if message.WhichOneof("message") == "header":
                expect(more, "a header behind the last")
                parts += message.header.parts
                etag, more = message.header.etag, message.header.more
                data += [bytearray() for _ in message.header.parts]
                continue
            chunk = message.chunk
            expect(not more, "a chunk before the last header")
            expect(
                not any(data[chunk.part + 1 :]), "parts are not in their order"
            )
            expect(chunk.offset == len(data[chunk.part]), "a gap in a part")
            expect(0 < len(chunk.data) <= CHUNK_BYTES, f"{len(chunk.data)} B")
            expect(chunk.crc32c == crc32c(chunk.data), "wrong CRC-32C")
            data[chunk.part] += chunk.data
        for part, got in zip(parts, data):
            expect(len(got) == part.num_bytes, f"{part.name}: {len(got)} B")
        return parts, [bytes(got) for got in data], etag


def tensors_of(path):
    """Name -> tensor, as PyTorch loads them."""
    flat = judge.load_flat(str(path))
    return {k: v for k, v in flat.items() if isinstance(v, torch.Tensor)}


def dtype_name(tensor):
    return str(tensor.dtype).replace("torch.", "")


def check_health(client):
    stub = health_pb2_grpc.HealthStub(client.channel)
    answer = stub.Check(health_pb2.HealthCheckRequest())
    expect(
        answer.status == health_pb2.HealthCheckResponse.SERVING,
        f"status {answer.status}",
    )


def check_reflection(client, channel):
    database = ProtoReflectionDescriptorDatabase(channel)
    services = set(database.get_services())
    want = {
        "google.longrunning.Operations",
        "grpc.health.v1.Health",
        "tessera.v1.CheckpointService",
        "tessera.v1.JobService",
        REFLECTION,
    }
    expect(want <= services, f"services {services}")
    file = database.FindFileContainingSymbol("tessera.v1.CheckpointService")
    got = {method.name for method in file.service[0].method}
    ours = client.api.DESCRIPTOR.services_by_name["CheckpointService"]
    expect(got == set(ours.methods_by_name), f"methods {got}")


def check_inspect(client, path):
    """Page by page, what PyTorch finds in the index."""
    pages, token = [], ""
    while not pages or token:
        page = client.inspect(path, page_size=3, page_token=token, chunks=True)
        expect(len(page.tensors) + len(page.objects) <= 3, "a page too long")
        pages.append(page)
        token = page.next_page_token
    expect(len(pages) > 2, f"{len(pages)} pages")
    index = judge.read_metadata(str(path)).state_dict_metadata
    want = {
        name: (str(m.properties.dtype)[6:], list(m.size))
        for name, m in index.items()
        if hasattr(m, "size")
    }
    tensors = [tensor for page in pages for tensor in page.tensors]
    got = {t.name: (t.dtype, list(t.shape)) for t in tensors}
    expect_no_lines(judge.differences("tensor", got, want))
    objects = {o.name: 0 for page in pages for o in page.objects}
    others = {name: 0 for name in index if name not in want}
    expect_no_lines(judge.differences("object", objects, others))
    expect(pages[0].num_tensors == len(want), f"{pages[0].num_tensors}")
    boxes = judge.chunk_boxes(str(path))
    for tensor in tensors:
        chunks = sorted(
            (tuple(c.box.offsets), tuple(c.box.sizes)) for c in tensor.chunks
        )
        expect(chunks == boxes[tensor.name], f"{tensor.name}: {chunks}")


def check_convert(client, source, target):
    job = client.convert(
        source, target, options={"request_id": str(uuid.uuid4())}
    )
    expect(re.fullmatch(r"operations/\S+", job.name), f"name {job.name!r}")
    job = client.wait(job)
    expect(not job.HasField("error"), f"{job.error}")
    result = client.jobs_api.ConvertResult()
    expect(job.response.Unpack(result), f"response {job.response}")
    expect(result.num_tensors == len(tensors_of(source)), f"{result}")
    expect(
        client.metadata(job).state == client.jobs_api.JobMetadata.SUCCEEDED,
        f"{client.metadata(job)}",
    )
    got = judge.describe_flat(judge.load_flat(str(target)))
    want = judge.describe_flat(judge.load_flat(str(source)))
    got, want = judge.normalized(*got), judge.normalized(*want)
    expect_no_lines(judge.differences("tensor", got[0], want[0]))
    expect_no_lines(judge.differences("object", got[1], want[1]))


def check_retried_submit(client, source, target):
    """The same request_id gives the same job; another request is refused."""
    options = {"request_id": str(uuid.uuid4())}
    first = client.convert(source, target, options=options)
    again = client.convert(source, target, options=options)
    expect(first.name == again.name, f"{first.name} and {again.name}")
    expect_refused(
        grpc.StatusCode.ALREADY_EXISTS,
        lambda: client.convert(source, f"{target}.2", options=options),
    )
    expect(not client.wait(first).HasField("error"), "it failed")


def check_plan(client, source, target):
    """A plan tells what a job would write, to the byte, without writing it."""
    plan = client.convert(source, target, options={"validate_only": True})
    expect(plan.done and not plan.name, f"{plan}")
    planned = client.jobs_api.ConvertResult()
    expect(plan.response.Unpack(planned), f"response {plan.response}")
    expect(not target.exists(), "a plan wrote")
    job = client.wait(client.convert(source, target))
    expect(not job.HasField("error"), f"{job.error}")
    size = sum(file.num_bytes for file in planned.files)
    expect(size == target.stat().st_size, f"planned {size}")


def check_watch(client, source, target):
    job = client.convert(source, target)
    watch = client.jobs.WatchJob(client.jobs_api.WatchJobRequest(name=job.name))
    seen = list(watch)
    expect(seen and seen[-1].done, "the last message is not of the end")
    done = [client.metadata(one).bytes_done for one in seen]
    expect(done == sorted(done), f"bytes_done {done}")


def check_list(client, other):
    """Lists jobs page by page and by state, but not those of other clients."""
    names, token = [], None
    while token != "":
        page = client.operations.ListOperations(
            client.operations_api.ListOperationsRequest(
                name="operations",
                filter="state = SUCCEEDED AND kind = CONVERT",
                page_size=2,
                page_token=token or "",
            )
        )
        names += [job.name for job in page.operations]
        token = page.next_page_token
    expect(len(names) == len(set(names)) > 2, f"jobs {names}")
    listing = client.operations_api.ListOperationsRequest(name="operations")
    strangers = other.operations.ListOperations(listing)
    expect(not strangers.operations, "jobs of another client")
    expect_refused(
        grpc.StatusCode.NOT_FOUND,
        lambda: other.operations.GetOperation(
            client.operations_api.GetOperationRequest(name=names[0])
        ),
    )


def check_read(client, path):
    """Whole tensors, bit for bit."""
    want = tensors_of(path)
    parts, data, _ = client.read(
        path,
        parts={"parts": [{"name": name} for name in want]},
        max_chunk_bytes=CHUNK_BYTES,
    )
    expect([p.name for p in parts] == list(want), "parts of other tensors")
    for part, got in zip(parts, data):
        tensor = want[part.name]
        expect(part.dtype == dtype_name(tensor), f"{part.name} {part.dtype}")
        expect(list(part.shape) == list(tensor.shape), f"{part.name} shape")
        expect(got == raw_bytes(tensor), f"{part.name} has other bytes")


def check_read_mesh(client, path):
    """What the ranks of a mesh of replicas and shards hold, as DTensor has
    it; together they hold everything."""
    sizes = (2, 3)
    mesh = {
        "axes": [
            {"name": "replicate", "size": sizes[0]},
            {"name": "shard", "size": sizes[1]},
        ]
    }
    want = tensors_of(path)
    boxes = {name: set() for name in want}
    for coordinate in itertools.product(*map(range, sizes)):
        parts, data, _ = client.read(
            path,
            rank_parts={"mesh": mesh, "coordinate": coordinate},
            max_chunk_bytes=CHUNK_BYTES,
        )
        for part, got in zip(parts, data):
            box = (tuple(part.box.offsets), tuple(part.box.sizes))
            boxes[part.name].add(box)
            cut = want[part.name][tuple(slice(o, o + s) for o, s in zip(*box))]
            expect(got == raw_bytes(cut), f"{part.name} {box}")
    for name, tensor in want.items():
        rows = Shard(0) if tensor.dim() else Replicate()
        here = boxes_of(tensor.shape, sizes, [Replicate(), rows])
        expect(
            without_empty(boxes[name]) == without_empty(here),
            f"{name}: {boxes[name]}, not {here}",
        )


def check_resume(client, path):
    """From any byte on, under the same etag, the rest of the same bytes."""
    wanted = {"parts": [{"name": name} for name in sorted(tensors_of(path))]}
    _, data, etag = client.read(path, parts=wanted, max_chunk_bytes=CHUNK_BYTES)
    whole = b"".join(data)
    for offset in (1, len(data[0]), len(whole) // 2, len(whole) - 1):
        stream = client.stream(
            path,
            parts=wanted,
            max_chunk_bytes=CHUNK_BYTES,
            resume_offset=offset,
            etag=etag,
        )
        rest = b"".join(message.chunk.data for message in stream)
        expect(rest == whole[offset:], f"from {offset} on it differs")
    expect_refused(
        grpc.StatusCode.FAILED_PRECONDITION,
        lambda: client.stream(
            path, parts=wanted, resume_offset=1, etag="of another"
        ),
    )


def check_errors(client, root):
    path = root / "none"
    _, place = expect_refused(
        grpc.StatusCode.NOT_FOUND, lambda: client.inspect(path)
    )
    expect(place.get("path") == str(path), f"place {place}")
    path = root / "fsdp_ws3"
    error, place = expect_refused(
        grpc.StatusCode.NOT_FOUND,
        lambda: client.stream(path, parts={"parts": [{"name": "no such"}]}),
    )
    expect("no such" in error.details(), error.details())
    expect(place.get("path") == str(path), f"place {place}")
    for outside in ("/etc/passwd", str(root.parent / "tokens")):
        expect_refused(
            grpc.StatusCode.PERMISSION_DENIED, lambda: client.inspect(outside)
        )
    expect_refused(
        grpc.StatusCode.INVALID_ARGUMENT,
        lambda: client.inspect(f"{root}/../root/fsdp_ws3"),
    )


def check_tokens(daemon, path):
    """Without a valid token, the server reveals only the refusal."""
    for token in (None, "", "let me", TOKENS["eval"] + "x"):
        client = Client(daemon.channel(token))
        wanted = {"parts": [{"name": "x"}]}
        for call in (
            lambda: client.inspect(path),
            lambda: client.stream(path, parts=wanted),
            lambda: client.convert(path, f"{path}.pt"),
            lambda: client.operations.ListOperations(
                client.operations_api.ListOperationsRequest(name="operations")
            ),
        ):
            expect_refused(grpc.StatusCode.UNAUTHENTICATED, call)


def check_rights(reader, path):
    expect(reader.inspect(path).num_tensors > 0, "nothing to read")
    expect_refused(
        grpc.StatusCode.PERMISSION_DENIED,
        lambda: reader.convert(path, f"{path}-by-reader"),
    )


def check_readme(client, root):
    """The code in proto/README.md does what the page says."""
    text = (PROTO / "README.md").read_text("utf-8")
    shown = re.findall(
        r"<!-- tests/interop/daemon_test.py -->\n```python\n(.*?)```",
        text,
        re.DOTALL,
    )
    expect(len(shown) == 2, f"{len(shown)} pieces of code")
    names = {}
    for code in shown:
        exec(compile(code, "README.md", "exec"), names)
    source, target = root / "fsdp_ws3", root / "readme.pt"
    result = names["consolidate"](client.channel, str(source), str(target))
    want = tensors_of(source)
    expect(result.num_tensors == len(want), f"{result}")
    shards = [
        names["read_shards"](client.channel, str(source), rank, 4)
        for rank in range(4)
    ]
    for name, tensor in want.items():
        cuts = [shard[name] for shard in shards if name in shard]
        got = torch.cat(cuts) if tensor.dim() else cuts[0]
        expect(torch.equal(got, tensor), f"{name} differs")


def main():
    suite = Suite("daemon")
    make_stubs(suite.fresh("stubs"))
    daemon = Daemon(suite.tool.path, suite.fresh("daemon"))
    try:
        run_cases(suite, daemon)
    finally:
        daemon.kill()
    suite.finish()


def run_cases(suite, daemon):
    root = daemon.root
    make_references(root, CASES)
    channel = daemon.channel(TOKENS["trainer"])
    client = Client(channel)
    reader = Client(daemon.channel(TOKENS["eval"]))
    fsdp = root / "fsdp_ws3"
    long = root / "long.pt"
    torch.save({"a": det((100, 33)), "b": det((3, 1000), torch.bfloat16)}, long)

    def case(name, function, *arguments):
        suite.case(name, function, *arguments)

    case("health", check_health, Client(daemon.channel()))
    case("reflection", check_reflection, client, daemon.channel())
    case("inspect", check_inspect, client, fsdp)
    for name in (*CASES[:-1], "pt_zoo.pt"):
        case(
            f"convert {name}",
            check_convert,
            client,
            root / name,
            root / f"{name}-converted",
        )
        case(f"read {name}", check_read, client, root / name)
    case("retried submit", check_retried_submit, client, fsdp, root / "once")
    case("validate_only", check_plan, client, fsdp, root / "planned.pt")
    case("watch", check_watch, client, fsdp, root / "watched")
    case("list", check_list, client, reader)
    case("read long tensors", check_read, client, long)
    case("read onto a mesh", check_read_mesh, client, fsdp)
    case("read long ones onto a mesh", check_read_mesh, client, long)
    case("resume", check_resume, client, long)
    case("errors", check_errors, client, root)
    case("tokens", check_tokens, daemon, fsdp)
    case("rights", check_rights, reader, fsdp)
    case("README", check_readme, client, root)
    case("stop", lambda: expect(daemon.stop() == 0, "no clean end"))


if __name__ == "__main__":
    main()
