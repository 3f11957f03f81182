"""Train a tiny model in a loop of the program's own, with Accelerate."""

import os

import accelerate
import torch

from freetrain.integrations.torch import join
from tests.integrations.tiny import EPOCHS, GLOBAL_BATCH, Record, TinyData, TinyModel

PIECES = int(os.environ.get("TEST_PIECES", "1"))


def main() -> None:
    accelerate.utils.set_seed(1)
    data = TinyData()
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=PIECES)
    with join(samples=len(data), global_batch=GLOBAL_BATCH, epochs=EPOCHS) as run:
        model = TinyModel()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        model, optimizer = accelerator.prepare(model, optimizer)
        if run.checkpoint:
            accelerator.load_state(run.checkpoint)
            accelerator.step = 0
        record = Record(run.fragment)
        sampler = run.sampler(pieces=PIECES)
        total = 0.0
        for words in run.batches(
            torch.utils.data.DataLoader(data, batch_sampler=sampler)
        ):
            record.use(words)
            with accelerator.accumulate(model):
                loss = model(words)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            total += accelerator.reduce(loss.detach(), "mean").item() / PIECES
            step = run.fragment.position.step + 1
            if not accelerator.sync_gradients:
                record.at("piece", step)
                run.poll()
                continue
            record.step(step)
            run.end_step(accelerator.save_state, loss=total)
            total = 0.0
            record.evaluate_where_due(run, step)
        if run.finished:
            record.write(finished=run.fragment.position.step)


if __name__ == "__main__":
    main()
