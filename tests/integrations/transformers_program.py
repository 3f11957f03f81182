"""Train a tiny GPT-2 with random weights by Transformers' Trainer."""

import os
from typing import Any

import transformers as library

from freetrain.integrations.transformers import ElasticTrainerCallback
from tests.integrations.tiny import (
    DROPOUT,
    EPOCHS,
    EVALUATE_EVERY,
    EVALUATION_BATCHES,
    GLOBAL_BATCH,
    SAMPLES,
    WORDS,
    Record,
    TinyData,
)


class Words(TinyData):
    def __getitem__(self, index: int) -> Any:
        return {"input_ids": self.words[index], "labels": self.words[index]}


class Recording(library.TrainerCallback):
    """Notes what each step used; called before FreeTrain's callback."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._evaluated = 0

    def use(self, model: Any, _: Any, given: dict[str, Any]) -> None:
        if model.training:
            self._record.use(given["input_ids"])

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
        self._evaluated = 0
        self._record.step(state.global_step)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
        self._record.at("piece", state.global_step + 1)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
        self._record.evaluate("evaluation", state.global_step, self._evaluated)
        self._evaluated += 1


def make_model() -> Any:
    config = library.GPT2Config(
        vocab_size=SAMPLES,
        n_positions=WORDS,
        n_embd=16,
        n_layer=2,
        n_head=2,
        resid_pdrop=DROPOUT,
        embd_pdrop=DROPOUT,
        attn_pdrop=DROPOUT,
        bos_token_id=0,
        eos_token_id=0,
    )
    return library.GPT2LMHeadModel(config)


def main() -> None:
    arguments = library.TrainingArguments(
        os.environ["TEST_RECORD"],
        per_device_train_batch_size=4 // int(os.environ.get("TEST_PIECES", "1")),
        num_train_epochs=EPOCHS,
        eval_strategy="steps",
        eval_steps=EVALUATE_EVERY,
        per_device_eval_batch_size=1,
        logging_steps=1,
        learning_rate=1e-3,
        use_cpu=True,
        disable_tqdm=True,
        report_to=[],
    )
    library.set_seed(1)
    model = make_model()
    with ElasticTrainerCallback(arguments, global_batch=GLOBAL_BATCH) as training:
        record = Record(training.run.fragment)
        recording = Recording(record)
        model.register_forward_pre_hook(recording.use, with_kwargs=True)
        whole = SAMPLES // GLOBAL_BATCH * GLOBAL_BATCH
        trainer = library.Trainer(
            model,
            arguments,
            train_dataset=Words(whole),
            eval_dataset=Words(EVALUATION_BATCHES),
            callbacks=[recording],
        )
        training.train(trainer)
        if training.finished:
            record.write(finished=trainer.state.global_step)


if __name__ == "__main__":
    main()
