# SPDX-License-Identifier: Apache-2.0
"""How tools/gpu_check judges programs that crash, hang or print nonsense, what
it refuses, and what it packs. The programs and Pythons here are scripts."""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = pathlib.Path("tests/fsdp/gpu").absolute()
sys.path.insert(0, str(HERE))

import check
import compare
import pack
import steps

TOOL = pathlib.Path("tools/gpu_check").absolute()
STEP = steps.Step(
    "one", "a title", "steps", 20, (("rate", 1e-9, "{:.1f} GB/s"),)
)
RANKS_STEP = steps.Step("both", "a third title", "ranks", 20)
GPU_STEP = steps.Step("two", "another title", steps.NCCL_TEST, 20)
FIGURES = {"rate": 2.5e9}


def good(ok=True, problems=()):
    report = {"ok": ok, "problems": list(problems), "figures": FIGURES}
    return f"echo '{json.dumps(report)}'"


def write_script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


class Folders(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Verdicts(Folders):
    def check(self, text, step=STEP, cpu=False, **options):
        path = steps.NCCL_TEST if step is GPU_STEP else steps.GPU_STEPS
        write_script(self.folder / path, text)
        args = argparse.Namespace(cpu=cpu, programs=self.folder, out="out")
        return dict(check.check(args, None, (step,), **options))[step.name]

    def test_a_step_that_passes_has_its_figures(self):
        result = self.check(good())
        self.assertEqual(result["verdict"], "ok")
        self.assertEqual(result["figures"], FIGURES)

    def test_a_step_is_told_name_device_and_folder(self):
        result = self.check('echo "$@" >&2; exit 1', cpu=True)
        self.assertEqual(result["log"], ["one cpu out"])

    def test_two_ranks_run_and_the_first_one_reports(self):
        report = json.dumps({"ok": True, "problems": [], "figures": {}})
        text = (
            'echo "$RANK of $WORLD_SIZE: $@" >&2\n'
            f"[[ $RANK == 0 ]] && echo '{report}' || echo no report"
        )
        self.assertEqual(self.check(text, RANKS_STEP)["verdict"], "ok")
        result = self.check(text + "; exit 2", RANKS_STEP)
        self.assertEqual(result["problems"], ["ended with exit code 2"])

    def test_a_rank_that_fails_ends_the_other(self):
        text = "[[ $RANK == 1 ]] && kill -ABRT $$; exec tail -f /dev/null"
        result = self.check(text, RANKS_STEP)
        self.assertEqual(result["problems"], ["ended with exit code 134"])

    def test_a_step_that_finds_problems_fails_with_them(self):
        result = self.check(good(ok=False, problems=["a is b"]))
        self.assertEqual(result["verdict"], "failed")
        self.assertEqual(result["problems"], ["a is b"])

    def test_a_crash_fails_with_the_end_of_what_it_said(self):
        text = "seq 100 >&2; echo 'frame #1: f' >&2; kill -ABRT $$"
        result = self.check(text)
        self.assertEqual(result["verdict"], "failed")
        self.assertEqual(result["problems"], ["ended with exit code -6"])
        self.assertEqual(result["log"][-1], "100")
        self.assertEqual(len(result["log"]), check.NUM_LOG_LINES)

    def test_a_crash_at_the_end_keeps_the_figures(self):
        result = self.check(f"{good()}; echo warning; exit 3")
        self.assertEqual(result["verdict"], "failed")
        self.assertEqual(result["problems"], ["ended with exit code 3"])
        self.assertEqual(result["figures"], FIGURES)

    def test_a_step_that_hangs_is_ended_with_what_it_started(self):
        step = steps.Step("one", "a title", "steps", 0.3)
        # Reads nothing for ever, in a child that would keep the output open.
        write_script(self.folder / steps.GPU_STEPS, "tail -f /dev/null & wait")
        args = argparse.Namespace(cpu=False, programs=self.folder, out="out")
        result = dict(check.check(args, None, (step,)))["one"]
        self.assertEqual(result["verdict"], "failed")
        self.assertEqual(result["problems"], ["did not end within 0.3 s"])

    def test_output_that_is_no_result_fails(self):
        for text in ("true", "echo no", "echo 1", "echo '{}'", "echo '[]'"):
            with self.subTest(text):
                result = self.check(text)
                self.assertEqual(result["verdict"], "failed")
                self.assertEqual(result["problems"], ["printed no result"])

    def test_tests_of_a_gpu_count_by_their_exit_code(self):
        self.assertEqual(self.check("true", GPU_STEP)["verdict"], "ok")
        self.assertEqual(self.check("exit 1", GPU_STEP)["verdict"], "failed")

    def test_tests_of_a_gpu_are_skipped_on_a_cpu(self):
        result = self.check("exit 1", GPU_STEP, cpu=True)
        self.assertEqual(result["verdict"], "skipped")
        self.assertEqual(result["problems"], ["requires a GPU"])

    def test_what_time_does_not_allow_is_skipped(self):
        result = self.check(good(), total=0)
        self.assertEqual(result["verdict"], "skipped")
        self.assertEqual(result["problems"], ["all steps together took 0 s"])


class Table(unittest.TestCase):
    def test_shows_figures_or_what_is_wrong(self):
        machine = {"device": "H100", "processors": 16, "torch": "2.11.0"}
        results = {
            "one": {"verdict": "ok", "figures": FIGURES, "seconds": 3.1},
            "two": {"verdict": "failed", "problems": ["a|b", "c"]},
        }
        text = check.table(
            {"machine": machine, "steps": results}, (STEP, GPU_STEP)
        )
        lines = text.splitlines()
        self.assertEqual(lines[0], "H100, 16 processors, torch 2.11.0")
        self.assertEqual(lines[4], "| one | a title | ok | 2.5 GB/s | 3.1 |")
        self.assertEqual(
            lines[5], "| two | another title | failed | a\\|b; c |  |"
        )

    def test_is_written_while_steps_have_not_run(self):
        machine = {"device": "H100", "processors": 16, "torch": "2.11.0"}
        results = {steps.STEPS[1].name: {"verdict": "ok"}}
        report = {"machine": machine, "steps": results}
        with tempfile.TemporaryDirectory() as folder:
            check.write(report, pathlib.Path(folder))
            text = (pathlib.Path(folder) / "gpu_check.md").read_text()
            figures = (pathlib.Path(folder) / "gpu_check.json").read_text()
        self.assertEqual(len(text.splitlines()), 5)
        self.assertEqual(json.loads(figures), report)


class Torch(Folders):
    def ask(self, text):
        python = self.folder / "python"
        write_script(python, text)
        return check.ask_torch(python)

    def test_its_folder_says_where_libraries_are(self):
        cuda = self.folder / "nvidia/cu13/lib"
        cuda.mkdir(parents=True)
        torch = {
            "torch": "2.11.1+cu130",
            "cuda": "13.0",
            "folder": str(self.folder / "torch"),
        }
        found = self.ask(f"echo '{json.dumps(torch)}'")
        self.assertEqual(
            check.library_folders(found["folder"]),
            [self.folder / "torch/lib", cuda],
        )

    def test_a_python_without_it_is_refused(self):
        with self.assertRaisesRegex(check.Refusal, "cannot import torch 2.11"):
            self.ask("echo ModuleNotFoundError >&2; exit 1")

    def test_another_version_is_refused(self):
        with self.assertRaisesRegex(check.Refusal, "has torch 2.110.0; "):
            self.ask('echo \'{"torch": "2.110.0"}\'')

    def test_a_wheel_for_another_cuda_is_refused(self):
        for cuda, found in (("12.8", "CUDA 12.8"), (None, "the CPU alone")):
            torch = {"torch": "2.11.0", "cuda": cuda}
            with self.assertRaisesRegex(
                check.Refusal, f"a wheel for {found}; .* CUDA 13: .*/cu130"
            ):
                self.ask(f"echo '{json.dumps(torch)}'")


class Packing(Folders):
    def setUp(self):
        super().setUp()
        self.programs = self.folder / "built"
        self.file = self.folder / "packed.tar.xz"

    def build(self, program):
        for path in steps.PROGRAMS:
            (self.programs / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(program, self.programs / path)

    def run_tool(self, *options):
        return subprocess.run([TOOL, *options], capture_output=True, text=True)

    def test_packs_programs_and_scripts(self):
        self.build("/bin/true")
        done = self.run_tool("--pack", self.file, "--programs", self.programs)
        self.assertEqual(done.returncode, 0, done.stderr)
        with tarfile.open(self.file) as archive:
            names = set(archive.getnames())
        for path in (*pack.SCRIPTS, f"programs/{steps.GPU_STEPS}"):
            self.assertIn(f"{pack.FOLDER}/{path}", names)

    def test_too_large_writes_nothing(self):
        self.build("/bin/true")
        with self.assertRaisesRegex(SystemExit, "more than 100; nothing"):
            pack.pack(self.programs, self.file, max_bytes=100)
        self.assertEqual(list(self.folder.iterdir()), [self.programs])

    def test_a_library_that_may_be_missing_is_refused(self):
        self.build("/bin/bash")
        done = self.run_tool("--pack", self.file, "--programs", self.programs)
        self.assertEqual(done.returncode, 1)
        self.assertIn("needs libtinfo.so.6, which another", done.stderr)
        self.assertFalse(self.file.exists())

    def test_a_program_that_is_not_there_is_refused(self):
        done = self.run_tool(
            "--pack", self.file, "--programs", self.folder / "none"
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"none lacks {steps.GPU_STEPS}", done.stderr)


class Options(unittest.TestCase):
    def test_unknown_ones_and_missing_values_are_refused(self):
        for options, message in (
            (["--gpu"], "the option '--gpu' is not known"),
            (["--pack"], "--pack requires a value"),
        ):
            done = subprocess.run(
                [TOOL, *options], capture_output=True, text=True
            )
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)


class Comparison(unittest.TestCase):
    def test_overhead_is_sharded_less_unsharded(self):
        def run(seconds):
            return {
                "tokens_per_second": 10 / seconds,
                "passes_seconds": seconds,
                "device_peak_bytes": 7,
                "loss": 1.5,
            }

        rounds = [
            {
                "1": {"ours": run(0.5), "pytorch": run(2.0)},
                "1 unsharded": {"ours": run(0.25), "pytorch": run(1.0)},
            }
        ]
        figures = compare.figures(rounds)
        self.assertEqual(figures["overhead_ms"], 250)
        self.assertEqual(figures["pytorch_overhead_ms"], 1000)
        self.assertEqual(figures["tokens_per_second"], 20)
        self.assertEqual(figures["pytorch_last_loss"], 1.5)


if __name__ == "__main__":
    unittest.main()
