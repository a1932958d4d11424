#include "spec/config_builder.h"

namespace fourfold {
namespace {

// Largest counts that are read; their products fit in 63 bits.
constexpr double kMaxSteps = 1e12;
constexpr double kMaxBatch = 1e9;
constexpr double kMaxSequence = 1e8;

std::vector<ConfigKey> train_keys() {
  return {
      key("train.steps", FF_FIELD(train.steps),
          {.doc = "optimizer steps of the whole run; give this or tokens",
           .unit = "steps",
           .min = 0,
           .max = kMaxSteps,
           .default_text = "required"}),
      key("train.tokens", FF_FIELD(train.tokens),
          {.doc = "in place of steps: as many steps as these tokens need",
           .unit = "tokens",
           .min = 0}),
      key("train.global_batch", FF_FIELD(train.global_batch),
          {.doc = "sequences of a step, of all ranks; a multiple of micro_batch·z·data",
           .unit = "sequences",
           .min = 1,
           .max = kMaxBatch,
           .default_text = "required"}),
      key("train.micro_batch", FF_FIELD(train.micro_batch),
          {.doc = "sequences of one forward pass of one (z, data) rank",
           .unit = "sequences",
           .min = 1,
           .max = kMaxBatch,
           .default_text = "required"}),
      key("train.seq_len", FF_FIELD(train.seq_len),
          {.doc = "length of the training sequences",
           .unit = "tokens",
           .min = 1,
           .max = kMaxSequence,
           .default_text = "model.seq_len"}),
      key("train.precision", FF_FIELD(train.precision),
          {.doc = "type of activations and products; masters are fp32 always. fp32x3: fp32 whose "
                  "products are three of bf16 each, exact to about 2^-17; needs AMX"}),
      key("train.eval_interval", FF_FIELD(train.eval_interval),
          {.doc = "between evaluations on data.valid; 0: at the end only",
           .unit = "steps",
           .min = 0}),
      key("train.eval_batches", FF_FIELD(train.eval_batches),
          {.doc = "batches of micro_batch·z·data sequences of one evaluation; 0: the whole split",
           .unit = "batches",
           .min = 0}),
      key("train.log_interval", FF_FIELD(train.log_interval),
          {.doc = "between progress lines", .unit = "steps", .min = 1}),
      key("train.time_budget_seconds", FF_FIELD(train.time_budget_seconds),
          {.doc = "save and leave with exit code 75 when it is spent; 0: none",
           .unit = "s",
           .min = 0}),
      key("train.non_finite", FF_FIELD(train.non_finite),
          {.doc = "on a loss or gradient that is no number: stop with exit code 6, or skip the "
                  "step"}),
  };
}

std::vector<ConfigKey> optimizer_keys() {
  return {
      key("optimizer.name", FF_FIELD(optimizer.name), {.doc = "", .choices = {"adamw"}}),
      key("optimizer.lr", FF_FIELD(optimizer.lr), {.doc = "learning rate after warm-up", .min = 0}),
      key("optimizer.betas", FF_FIELD(optimizer.betas),
          {.doc = "decay of the two moments", .min = 0, .max = 0.999999}),
      key("optimizer.eps", FF_FIELD(optimizer.eps), {.doc = "of Adam", .min = 0}),
      key("optimizer.weight_decay", FF_FIELD(optimizer.weight_decay),
          {.doc = "of weights; norms and biases never decay", .min = 0}),
      key("optimizer.decay_embeddings", FF_FIELD(optimizer.decay_embeddings),
          {.doc = "whether embeddings decay"}),
      key("optimizer.clip_grad", FF_FIELD(optimizer.clip_grad),
          {.doc = "largest global norm of the gradient; 0: none", .min = 0}),
  };
}

std::vector<ConfigKey> schedule_keys() {
  return {
      key("schedule.name", FF_FIELD(schedule.kind), {.doc = "of the learning rate after warm-up"}),
      key("schedule.warmup", FF_FIELD(schedule.warmup),
          {.doc = "linear rise from 0", .unit = "steps", .min = 0}),
      key("schedule.min_lr", FF_FIELD(schedule.min_lr),
          {.doc = "learning rate at the end", .min = 0}),
      key("schedule.decay", FF_FIELD(schedule.decay),
          {.doc = "wsd: steps of the final decay",
           .unit = "steps",
           .min = 0,
           .default_text = "0: a tenth of the steps"}),
  };
}

}  // namespace

std::vector<ConfigKey> training_keys() {
  std::vector<ConfigKey> keys = train_keys();
  for (auto part : {optimizer_keys(), schedule_keys()}) {
    keys.insert(keys.end(), part.begin(), part.end());
  }
  return keys;
}

}  // namespace fourfold
