# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of tools/gpu_check; see its --help.

Called with the Python that has PyTorch, whose libraries the programs load. Each
step is a process of its own with a limit of time, so that one that crashes or
hangs is a verdict and not the end.
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time

import steps

HERE = pathlib.Path(__file__).resolve().parent
# LibTorch's C++ interface changes from version to version.
TORCH_VERSION = "2.11"
# The programs load libcudart.so.13.
CUDA_VERSION = "13"
# What is kept of the output of a step that failed.
NUM_LOG_LINES = 30

ASK_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
print(json.dumps({
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "folder": torch.__path__[0],
    "gpu": torch.cuda.get_device_name(0) if cuda else None,
    "gpu_bytes":
        torch.cuda.get_device_properties(0).total_memory if cuda else None,
}))
"""


class Refusal(Exception):
    """Nothing can be checked; the text says why."""


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="tools/gpu_check")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default="gpu_check.out")
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    return parser.parse_args(arguments)


def ask_torch(python):
    """Its version and folder, and the GPU."""
    done = subprocess.run(
        [python, "-c", ASK_TORCH], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise Refusal(
            f"{python} cannot import torch {TORCH_VERSION}; set "
            f"TESSERA_PYTHON to a Python that has it:\n{done.stderr[-1000:]}"
        )
    found = json.loads(done.stdout.splitlines()[-1])
    if not found["torch"].startswith(TORCH_VERSION + "."):
        raise Refusal(
            f"{python} has torch {found['torch']}; the programs are built for "
            f"{TORCH_VERSION}"
        )
    if (found["cuda"] or "").split(".")[0] != CUDA_VERSION:
        built = f"CUDA {found['cuda']}" if found["cuda"] else "the CPU alone"
        raise Refusal(
            f"{python} has torch {found['torch']}, a wheel for {built}; the "
            f"programs need that for CUDA {CUDA_VERSION}: pip install "
            f"'torch=={TORCH_VERSION}.*' --index-url "
            f"https://download.pytorch.org/whl/cu{CUDA_VERSION}0"
        )
    return found


def library_folders(torch_folder):
    """Where torch's own libraries are, and those of CUDA next to it."""
    torch_folder = pathlib.Path(torch_folder)
    cuda = torch_folder.parent.glob("nvidia/*/lib")
    return [torch_folder / "lib", *sorted(cuda)]


def environment(torch, on_cpu):
    paths = [str(path) for path in library_folders(torch["folder"])]
    if os.environ.get("LD_LIBRARY_PATH"):
        paths.append(os.environ["LD_LIBRARY_PATH"])
    env = {**os.environ, "LD_LIBRARY_PATH": ":".join(paths)}
    if on_cpu:
        # Some virtual machines show AMX but do not allow it.
        env.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    return env


def command_of(step, programs, device, out):
    gpu_step = [programs / steps.GPU_STEPS, step.name, device, out]
    if step.program == "steps":
        return gpu_step
    if step.program == "ranks":
        return [sys.executable, "-B", HERE / "ranks.py", *gpu_step]
    if step.program == "compare":
        bench = programs / steps.TRAIN_BENCH
        return [sys.executable, "-B", HERE / "compare.py", bench, device]
    return [programs / step.program]


def last_lines(text):
    # Frames of a stack say nothing without symbols.
    lines = [l for l in text.splitlines() if not l.startswith("frame #")]
    return lines[-NUM_LOG_LINES:]


def run(command, env, limit_seconds):
    """The exit code, or None at the limit; and both outputs."""
    process = subprocess.Popen(
        [str(word) for word in command],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_seconds)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        # With the processes that it started.
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return None, out, err


def parse_report(text):
    """The line of JSON that gpu_steps and compare.py print, or None.

    Libraries may print more on the same stream.
    """
    for line in reversed(text.splitlines()):
        try:
            report = json.loads(line)
            if isinstance(report["ok"], bool):
                return report
        except (KeyError, TypeError, ValueError):
            pass
    return None


def judge(step, code, out, err, limit_seconds):
    """The verdict, and what belongs to it."""
    report = parse_report(out)
    failed = {"verdict": "failed", "log": last_lines(err + out)}
    if report is not None:
        failed["figures"] = report["figures"]
    if code is None:
        why = f"did not end within {limit_seconds:.3g} s"
        return {**failed, "problems": [why]}
    if code != 0:
        return {**failed, "problems": [f"ended with exit code {code}"]}
    if step.is_googletest:
        return {"verdict": "ok"}
    if report is None:
        return {**failed, "problems": ["printed no result"]}
    result = {
        "verdict": "ok" if report["ok"] else "failed",
        "figures": report["figures"],
    }
    if "libtorch" in report:
        result["libtorch"] = report["libtorch"]
    if not report["ok"]:
        result["problems"] = report["problems"]
        result["log"] = last_lines(err)
    return result


def check(args, env, all_steps=steps.STEPS, total=steps.TOTAL_SECONDS):
    """Runs every step, and yields each step's name and result."""
    device = "cpu" if args.cpu else "cuda"
    begin = time.monotonic()
    for step in all_steps:
        left = total - (time.monotonic() - begin)
        if args.cpu and step.is_googletest:
            result = {"verdict": "skipped", "problems": ["requires a GPU"]}
        elif left <= 0:
            why = f"all steps together took {total} s"
            result = {"verdict": "skipped", "problems": [why]}
        else:
            limit = min(step.limit_seconds, left)
            started = time.monotonic()
            command = command_of(step, args.programs, device, args.out)
            result = judge(step, *run(command, env, limit), limit)
            result["seconds"] = round(time.monotonic() - started, 1)
        print(f"{step.name}: {result['verdict']}", file=sys.stderr, flush=True)
        yield step.name, {"title": step.title, **result}


def shown_figures(step, result):
    """For the table: the figures that there are, or what is wrong."""
    if result.get("problems"):
        return "; ".join(result["problems"])
    figures = result.get("figures", {})
    texts = []
    for name, scale, form in step.shown:
        value = figures.get(name)
        if isinstance(value, str):
            texts.append(form.format(value))
        elif value is not None:
            texts.append(form.format(value * scale))
    return ", ".join(texts)


def table(report, all_steps=steps.STEPS):
    machine = report["machine"]
    lines = [
        f"{machine['device']}, {machine['processors']} processors, "
        f"torch {machine['torch']}",
        "",
        "| step | what holds | verdict | figures | seconds |",
        "| --- | --- | --- | --- | --- |",
    ]
    for step in all_steps:
        result = report["steps"].get(step.name)
        if result is None:
            continue
        cells = (
            step.name,
            step.title,
            result["verdict"],
            shown_figures(step, result).replace("|", "\\|"),
            str(result.get("seconds", "")),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write(report, folder):
    all_figures = json.dumps(report, indent=1) + "\n"
    (folder / "gpu_check.json").write_text(all_figures)
    (folder / "gpu_check.md").write_text(table(report))


def main():
    args = parse_arguments(sys.argv[1:])
    try:
        torch = ask_torch(sys.executable)
        if torch["gpu"] is None and not args.cpu:
            raise Refusal(
                "torch finds no GPU; --cpu runs the steps that need none"
            )
        missing = steps.missing_programs(args.programs)
        if missing:
            raise Refusal(f"{args.programs} lacks {', '.join(missing)}")
        args.out.mkdir(parents=True, exist_ok=True)
    except (Refusal, OSError) as error:
        sys.exit(f"gpu_check: {error}")
    report = {
        "machine": {
            "device": "CPU" if args.cpu else torch["gpu"],
            "device_bytes": None if args.cpu else torch["gpu_bytes"],
            "processors": os.cpu_count(),
            "kernel": platform.release(),
            "torch": torch["torch"],
        },
        "steps": {},
    }
    # After each step, so that a check which is ended early leaves its figures.
    for name, result in check(args, environment(torch, args.cpu)):
        report["steps"][name] = result
        write(report, args.out)
    print(table(report), end="")
    verdicts = [result["verdict"] for result in report["steps"].values()]
    sys.exit(1 if "failed" in verdicts else 0)


if __name__ == "__main__":
    main()
