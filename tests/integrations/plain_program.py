"""Train a tiny model in a plain loop, with sharded checkpoints, and evaluate it."""

import os

import numpy as np
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from freetrain.integrations.torch import ShardedCheckpoint, join
from tests.integrations.tiny import EPOCHS, GLOBAL_BATCH, Record, TinyData, TinyModel

PIECES = int(os.environ.get("TEST_PIECES", "1"))


def spread(model: torch.nn.Module) -> torch.nn.Module:
    """Cut the model's weights into shards, one a rank, so that loading cuts anew."""
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    return fully_shard(model, mesh=mesh)


def main() -> None:
    torch.manual_seed(1)
    data = TinyData()
    with join(samples=len(data), global_batch=GLOBAL_BATCH, epochs=EPOCHS) as run:
        model = spread(TinyModel())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        saved = ShardedCheckpoint(
            model, optimizer, wait=run.fragment.generation % 2 == 1
        )
        if run.checkpoint:
            saved.load(run.checkpoint)
        record = Record(run.fragment)
        sampler = run.sampler(pieces=PIECES)
        loader = torch.utils.data.DataLoader(data, batch_sampler=sampler)
        total, pieces = 0.0, 0
        for words in run.batches(loader):
            record.use(words)
            loss = model(words) / PIECES
            loss.backward()
            total, pieces = total + loss.item(), pieces + 1
            step = run.fragment.position.step + 1
            if pieces < PIECES:
                record.at("piece", step)
                run.poll()
                continue
            optimizer.step()
            optimizer.zero_grad()
            mean = run.fragment.world.total(np.array([total])) / run.fragment.size
            total, pieces = 0.0, 0
            record.step(step)
            run.end_step(saved.save, loss=float(mean[0]))
            record.evaluate_where_due(run, step)
        if run.finished:
            record.write(finished=run.fragment.position.step)


if __name__ == "__main__":
    main()
