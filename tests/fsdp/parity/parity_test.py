"""fsdp beside Python's FSDP2: the same weights and data, the same numbers.

For each configuration of cases.py both train on the same number of ranks over
Gloo. Demanded: as many collectives of each kind in a step; the gradients of the
first step bit for bit; losses and final parameters bit for bit after up to 100
steps of the fused AdamW, and within TOLERANCE after those of Adam (LibTorch's
rounds otherwise than Python's). The figures go to parity.json in Bazel's folder
of outputs.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "interop"))

import cases
import harness
import numpy
import prepare
from harness import expect

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = {"float32": numpy.float32, "float64": numpy.float64}
# Of losses, relative, and of parameters, absolute.
TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 2e-3}
# Only against ranks that hang.
HANG_SECONDS = 600


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(processes):
    """Ends all when one fails, for the others would wait in vain.

    Each is (process, its log).
    """
    deadline = time.monotonic() + HANG_SECONDS
    running = list(processes)
    try:
        while running:
            process, log = running[0]
            expect(time.monotonic() < deadline, f"hangs\n{tail(log)}")
            try:
                process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                pass
            for process, log in list(running):
                code = process.poll()
                if code is not None:
                    running.remove((process, log))
                    expect(code == 0, f"exit code {code}\n{tail(log)}")
    finally:
        for process, _ in processes:
            process.kill()
            process.wait()


def tail(log):
    lines = log.read_text(errors="replace").splitlines()
    # LibTorch's stack traces would hide what happened.
    lines = [line for line in lines if not line.startswith("frame #")]
    return "\n".join(lines)[-4000:]


def start(log, *arguments, **environment):
    """(process, its log), to which it appends."""
    with open(log, "a") as output:
        process = subprocess.Popen(
            [str(word) for word in arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return process, log


def start_ours(tool, job, world_size, out):
    out.mkdir()
    common = {
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    return [
        start(
            out / "log", tool, job, out, RANK=str(r), LOCAL_RANK=str(r), **common
        )
        for r in range(world_size)
    ]


def start_theirs(job, world_size, out):
    out.mkdir()
    script = HERE / "torch_trainer.py"
    return start(
        out / "log", sys.executable, "-B", script, job, world_size, out
    )


def values(folder, prefix, dtype):
    """name -> flat values."""
    return {
        path.name[len(prefix) : -len(".bin")]: numpy.fromfile(path, dtype)
        for path in sorted(folder.glob(f"{prefix}*.bin"))
    }


def compare_gradients(ours, theirs, dtype):
    ours, theirs = (values(f, "grad.", dtype) for f in (ours, theirs))
    expect(ours and ours.keys() == theirs.keys(), "gradients of other names")
    harness.expect_no_lines(
        [
            f"gradient of {name}: {(ours[name] != theirs[name]).sum()} of "
            f"{theirs[name].size} differ, by up to "
            f"{abs(ours[name] - theirs[name]).max()}"
            for name in theirs
            if ours[name].tobytes() != theirs[name].tobytes()
        ]
    )


def compare_training(ours, theirs, dtype, tolerance):
    """Returns the largest differences of losses and of parameters."""
    our_losses, their_losses = (
        numpy.fromfile(folder / "losses.bin") for folder in (ours, theirs)
    )
    expect(our_losses.shape == their_losses.shape, "numbers of steps differ")
    losses = float((abs(our_losses - their_losses) / abs(their_losses)).max())
    ours, theirs = (values(f, "param.", dtype) for f in (ours, theirs))
    expect(ours.keys() == theirs.keys(), "parameters of other names")
    parameters = max(
        float(abs(ours[name] - theirs[name]).max()) for name in theirs
    )
    expect(
        losses <= tolerance and parameters <= tolerance,
        f"losses differ by {losses:.2g}, parameters by {parameters:.2g}; "
        f"allowed {tolerance}",
    )
    return {"losses": losses, "parameters": parameters}


def compare_counts(ours, theirs, all_gathers_saved):
    ours, theirs = (
        json.loads((folder / "counts.json").read_text())
        for folder in (ours, theirs)
    )
    expected = {**theirs}
    expected["all_gather"] -= all_gathers_saved
    expect(
        ours == expected,
        f"collectives of a step: {ours}, PyTorch's: {theirs}"
        + (f" less {all_gathers_saved}" if all_gathers_saved else ""),
    )
    return {"ours": ours, "pytorch": theirs}


def tolerance_of(config):
    if config["optimizer"] == "fused_adamw":
        return 0.0
    return TOLERANCE[config["param_dtype"] or config["dtype"]]


def compare(config, ours, theirs, figures):
    dtype = DTYPES[config["dtype"]]
    ours, theirs = ours / config["name"], theirs / config["name"]
    figures["collectives"] = compare_counts(
        ours, theirs, config["all_gathers_saved"]
    )
    compare_gradients(ours, theirs, dtype)
    figures["difference"] = compare_training(
        ours, theirs, dtype, tolerance_of(config)
    )


def train(suite, world_size, configs):
    """Folders of both results, or None after a failure."""
    ours = suite.scratch / f"ours-{world_size}"
    theirs = suite.scratch / f"theirs-{world_size}"
    job = prepare.prepare(suite.scratch, configs, f"job-{world_size}")

    def both():
        # At once, for most of the time each waits for a rank of its own.
        begun = [start_theirs(job, world_size, theirs)]
        begun += start_ours(suite.tool.path, job, world_size, ours)
        wait_for(begun)

    before = len(suite.results)
    suite.case(f"train on {world_size}", both)
    return (ours, theirs) if suite.results[before][2] is None else None


def main():
    suite = harness.Suite("parity_test")
    report = {}
    for world_size, configs in cases.CASES.items():
        folders = train(suite, world_size, configs)
        for config in configs if folders else ():
            name = f"{config['name']} on {world_size}"
            figures = report[name] = {"steps": config["steps"]}
            suite.case(name, compare, config, *folders, figures)
            print("    ", json.dumps(figures), flush=True)
    outputs = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
    if outputs:
        path = pathlib.Path(outputs) / "parity.json"
        path.write_text(json.dumps(report, indent=1))
    suite.finish()


if __name__ == "__main__":
    main()
