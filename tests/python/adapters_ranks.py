# SPDX-License-Identifier: Apache-2.0
"""One rank of a training in a framework: torchrun adapters_ranks.py CASE DIR.

Each case trains with the package itself and lets the package save checkpoints,
then resumes in a training that began with other weights. Both must compute the
same from there on, bit for bit.
"""

import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import rank_end
import tessera.torch

FEATURES = 6


def make_net(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 10), nn.ReLU(), nn.Linear(10, 3))


def compute_loss(net, step):
    """The loss on a batch that depends only on the step and the rank."""
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return net(torch.randn(4, FEATURES, generator=generator)).square().sum()


def shard_on_the_cpu():
    """Lets accelerate shard without a GPU.

    accelerate shards only on accelerators, and this method says which there
    are. The rest of the package runs unchanged.
    """
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    PartialState._prepare_backend = lambda *_, **__: (
        "gloo",
        DistributedType.MULTI_GPU,
    )


def accelerate(folder):
    """Accelerator.save_state and load_state with FSDP2."""
    from accelerate import Accelerator
    from accelerate import FullyShardedDataParallelPlugin

    tessera.torch.register(file_system=True)
    shard_on_the_cpu()
    accelerator = Accelerator(
        fsdp_plugin=FullyShardedDataParallelPlugin(
            fsdp_version=2,
            state_dict_type="SHARDED_STATE_DICT",
            auto_wrap_policy="no_wrap",
        )
    )

    def begin(seed):
        net = make_net(seed)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        return accelerator.prepare(net, optimizer, schedule)

    def train(training, steps):
        net, optimizer, schedule = training
        losses = []
        for step in steps:
            loss = compute_loss(net, step)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    training = begin(seed=1)
    train(training, range(2))
    accelerator.save_state(folder / "state")
    expected = train(training, range(2, 5))
    accelerator.free_memory()
    training = begin(seed=2)
    accelerator.load_state(folder / "state")
    assert train(training, range(2, 5)) == expected


def transformers(folder):
    """Trainer, with accelerate beneath."""
    from transformers import LlamaConfig
    from transformers import LlamaForCausalLM
    from transformers import Trainer
    from transformers import TrainingArguments

    tessera.torch.register(file_system=True)
    shard_on_the_cpu()
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
    )
    tokens = torch.randint(
        0, 32, (64, 8), generator=torch.Generator().manual_seed(0)
    )
    data = [{"input_ids": row, "labels": row} for row in tokens]

    def train(seed, resume=None):
        torch.manual_seed(seed)
        arguments = TrainingArguments(
            output_dir=folder / "run",
            max_steps=4,
            save_steps=2,
            logging_steps=1,
            per_device_train_batch_size=2,
            learning_rate=0.01,
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
            fsdp=True,
            fsdp_config={
                "version": 2,
                "state_dict_type": "SHARDED_STATE_DICT",
                "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
            },
        )
        trainer = Trainer(LlamaForCausalLM(config), arguments, None, data)
        trainer.train(resume_from_checkpoint=resume)
        weights = {
            name: value.full_tensor()
            for name, value in trainer.model.state_dict().items()
        }
        return trainer.state.log_history, weights

    def losses(history):
        return [entry["loss"] for entry in history if "loss" in entry]

    history, expected = train(seed=1)
    resumed_history, weights = train(2, str(folder / "run" / "checkpoint-2"))
    assert len(losses(history)) == 4
    assert losses(resumed_history) == losses(history)
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(weights[name], value), name


def lightning(folder):
    """Trainer, with each strategy that shards."""
    tessera.torch.register(file_system=True)
    lightning_model_parallel(folder / "model_parallel")
    lightning_fsdp(folder / "fsdp")


def lightning_fit(folder, make_strategy, shard):
    """Trainer.fit, which saves and resumes.

    Args:
      shard: called with a network and the LightningModule; returns the former
        sharded.
    """
    from lightning.pytorch import LightningModule
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Training(LightningModule):
        def __init__(self, seed):
            super().__init__()
            self.net = make_net(seed)
            self.losses = []

        def configure_model(self):
            self.net = shard(self.net, self)

        def training_step(self, batch, index):
            loss = compute_loss(self.net, self.global_step)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def train(seed, resume=None):
        training = Training(seed)
        trainer = Trainer(
            accelerator="cpu",
            devices=dist.get_world_size(),
            strategy=make_strategy(),
            max_steps=4,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[
                ModelCheckpoint(
                    folder,
                    filename="{step}",
                    every_n_train_steps=2,
                    save_top_k=-1,
                )
            ],
        )
        trainer.fit(
            training,
            torch.utils.data.DataLoader(torch.zeros(16)),
            ckpt_path=resume,
        )
        return training.losses

    expected = train(seed=1)
    assert len(expected) == 4
    assert train(2, folder / "step=2.ckpt") == expected[2:]


def lightning_model_parallel(folder):
    """ModelParallelStrategy: FSDP2."""
    from lightning.pytorch.strategies import ModelParallelStrategy

    lightning_fit(
        folder,
        lambda: ModelParallelStrategy(
            data_parallel_size=dist.get_world_size(), tensor_parallel_size=1
        ),
        lambda net, module: fully_shard(
            net, mesh=module.device_mesh["data_parallel"]
        ),
    )


def lightning_fsdp(folder):
    """FSDPStrategy: FSDP1."""
    from lightning.pytorch.strategies import FSDPStrategy
    from torch.distributed.fsdp import FullyShardedDataParallel

    # Without a GPU, the trainer refuses exactly this class, but no derived one.
    # The strategy cannot name the CPU to FSDP, so the module is wrapped here.
    class OnTheCpu(FSDPStrategy):
        pass

    lightning_fit(
        folder,
        lambda: OnTheCpu(state_dict_type="sharded"),
        lambda net, module: FullyShardedDataParallel(
            net, use_orig_params=True, device_id=torch.device("cpu")
        ),
    )


class Count:
    """A part of the state that TorchTitan saves with the model."""

    def __init__(self, name):
        self.name = name
        self.count = 0

    def state_dict(self):
        return {self.name: self.count}

    def load_state_dict(self, state):
        self.count = state[self.name]


def torchtitan(folder):
    """CheckpointManager, in each mode."""
    import tessera.torch.registered  # as --experimental.custom_import does

    for mode in ("disabled", "async", "async_with_pinned_mem"):
        torchtitan_mode(folder / mode, mode)


def torchtitan_mode(folder, mode):
    from torch.distributed.checkpoint.staging import DefaultStager
    from torch.distributed.checkpoint.staging import StagingOptions
    from torchtitan.components.checkpoint import CheckpointManager
    from torchtitan.components.lr_scheduler import build_lr_schedulers
    from torchtitan.components.optimizer import OptimizersContainer
    from torchtitan.config import Checkpoint
    from torchtitan.config import LRScheduler

    class Training:
        def __init__(self, seed):
            self.net = make_net(seed)
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            fully_shard(self.net, mesh=mesh)
            self.optimizers = OptimizersContainer(
                [self.net], torch.optim.AdamW, {"lr": 0.01}
            )
            self.schedules = build_lr_schedulers(
                self.optimizers, LRScheduler(warmup_steps=2), 10
            )
            self.train_state = Count("step")
            self.checkpointer = CheckpointManager(
                dataloader=Count(f"dp_rank_{dist.get_rank()}"),
                model_parts=[self.net],
                optimizers=self.optimizers,
                lr_schedulers=self.schedules,
                states={"train_state": self.train_state},
                checkpoint_config=Checkpoint(
                    enable=True, interval=2, async_mode=mode, keep_latest_k=0
                ),
                sd_adapter=None,
                base_folder=str(folder),
            )

        def step(self):
            self.optimizers.zero_grad()
            loss = compute_loss(self.net, self.train_state.count)
            loss.backward()
            self.checkpointer.maybe_wait_for_staging()
            self.optimizers.step()
            self.schedules.step()
            self.train_state.count += 1
            return loss.item()

        def save(self):
            if mode == "async_with_pinned_mem":
                # TorchTitan's own requires a GPU. The one in PyTorch 2.11 works
                # only once.
                self.checkpointer.stager = DefaultStager(
                    StagingOptions(
                        use_pinned_memory=False, use_non_blocking_copy=False
                    )
                )
            self.checkpointer.save(
                self.train_state.count, last_step=self.train_state.count == 6
            )

    training = Training(seed=1)
    expected = []
    for _ in range(6):
        expected.append(training.step())
        training.save()
    training.checkpointer.close()
    for step in (2, 4):  # the last save has only the model
        training = Training(seed=2)
        assert training.checkpointer.load(step)
        assert training.train_state.count == step
        assert [training.step() for _ in range(step, 6)] == expected[step:]


CASES = {
    case.__name__: case
    for case in (
        accelerate,
        transformers,
        lightning,
        torchtitan,
    )
}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    CASES[sys.argv[1]](pathlib.Path(sys.argv[2]))
    dist.barrier()
    rank_end.end()


if __name__ == "__main__":
    main()
