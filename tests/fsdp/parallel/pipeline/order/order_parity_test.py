# SPDX-License-Identifier: Apache-2.0
"""The orders of fsdp's pipeline schedules are those of PyTorch 2.15, action by
action and idle slot by idle slot, on a grid of ranks, stages and microbatches;
and each reads the CSV files of the other.
"""

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[4] / "interop")]

import subprocess
import tempfile

from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.stage import _PipelineStageBase

import harness

GPIPE, ONE, INTERLEAVED, ZERO_BUBBLE, ZBV, DUAL = range(6)
MULTI = {
    INTERLEAVED: schedules.ScheduleInterleaved1F1B,
    ZERO_BUBBLE: schedules.ScheduleInterleavedZeroBubble,
    ZBV: schedules.ScheduleZBVZeroBubble,
    DUAL: schedules.ScheduleDualPipeV,
}
SINGLE = {GPIPE: schedules.ScheduleGPipe, ONE: schedules.Schedule1F1B}
GRID = [
    (kind, ranks, stages, microbatches)
    for kind in (*SINGLE, *MULTI)
    for ranks in (1, 2, 3, 4, 6, 8)
    for stages in (1, 2, 3, 4)
    for microbatches in (*range(1, 17), 24, 32)
]


class Stage(_PipelineStageBase):
    """A stage for which only an order is made."""

    def __init__(self, ranks, stages):
        self.num_stages = ranks * stages
        self.group_size = ranks
        self.group_rank = 0
        self.group = None
        self.submod = None
        self.has_backward = True
        self.stage_index = 0
        self.p2p_per_edge = False

    def _create_grad_recv_info(self, act_send_info):
        return None

    def _prepare_forward_infra(self, *args, **kwargs):
        return None

    def _prepare_backward_infra(self, *args, **kwargs):
        return None


def their_schedule(kind, ranks, stages, microbatches):
    """A schedule of PyTorch; None where it refuses the numbers."""
    local = [Stage(ranks, stages) for _ in range(stages)]
    loss = lambda output, target: output.sum()
    try:
        if kind in SINGLE:
            if stages != 1:
                return None
            return SINGLE[kind](local[0], microbatches, loss)
        return MULTI[kind](local, microbatches, loss)
    except (ValueError, ZeroDivisionError):
        return None


def their_order(kind, schedule):
    if kind in MULTI:
        return schedule.pipeline_order
    order = schedule._get_pipeline_order()
    compute = {
        rank: [a for a in actions if a is not None and a.is_compute_op]
        for rank, actions in order.items()
    }
    if kind == ONE:
        # The list for the last rank numbers forwards from 1; a step of
        # Schedule1F1B runs them from 0.
        last = max(compute)
        compute[last] = [
            a._replace(microbatch_index=a.microbatch_index - 1)
            if a.computation_type == schedules.FORWARD
            else a
            for a in compute[last]
        ]
    return compute


def their_csv(kind, schedule):
    order = their_order(kind, schedule)
    return "".join(
        ",".join("" if a is None else str(a) for a in order[rank]) + "\n"
        for rank in sorted(order)
    )


def our_answers(suite, requests):
    run = subprocess.run(
        [suite.tool.path],
        input="\n".join(requests),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = run.stdout.split("end\n")[:-1]
    assert len(answers) == len(requests)
    return answers


def orders_are_equal(suite):
    requests = [
        f"make {kind} {ranks} {stages} {microbatches}"
        for kind, ranks, stages, microbatches in GRID
    ]
    num_made, num_refused = 0, 0
    for case, ours in zip(GRID, our_answers(suite, requests)):
        schedule = their_schedule(*case)
        if schedule is None:
            harness.expect(ours.startswith("error: "), f"{case}: {ours}")
            num_refused += 1
            continue
        theirs = their_csv(case[0], schedule)
        harness.expect(ours == theirs, f"{case}:\n{ours}is not\n{theirs}")
        num_made += 1
    print(f"{num_made} orders are equal, {num_refused} are refused by both")
    harness.expect(num_made > 500 and num_refused > 100, "a small grid")


def files_are_read(suite):
    cases = [
        case
        for case in GRID
        if case[0] in MULTI and case[1] in (2, 4) and case[3] in (5, 8, 16)
    ]
    schedules_ = [(case, their_schedule(*case)) for case in cases]
    schedules_ = [(case, s) for case, s in schedules_ if s is not None]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, (_, schedule) in enumerate(schedules_):
            paths.append(f"{folder}/{i}.csv")
            schedule._dump_csv(paths[-1], format="compute_only")
        answers = our_answers(suite, [f"read {path}" for path in paths])
        for (case, schedule), path, ours in zip(schedules_, paths, answers):
            harness.expect(
                ours == pathlib.Path(path).read_text(), f"{case}: {ours}"
            )
            # And back.
            before = schedule.pipeline_order
            pathlib.Path(path).write_text(ours)
            schedule.pipeline_order = {}
            # Reading checks the stages' ranks, and makes the messages.
            schedule._load_csv(path)
            harness.expect(schedule.pipeline_order == before, f"{case}")
    harness.expect(len(schedules_) > 20, "a few files")


def main():
    suite = harness.Suite("order_parity_test")
    suite.case("orders are equal", orders_are_equal, suite)
    suite.case("files are read", files_are_read, suite)
    suite.finish()


if __name__ == "__main__":
    main()
