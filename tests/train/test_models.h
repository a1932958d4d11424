#pragma once

#include "spec/presets.h"
#include "spec/run_spec.h"

namespace fourfold::testing {

/// A small GPT whose vocabulary and MLP divide by nothing.
inline ModelSpec tiny_gpt() {
  ModelSpec m = *family_defaults("gpt");
  m.layers = 2;
  m.hidden = 42;
  m.heads = 6;
  m.ffn = 101;
  m.seq_len = 17;
  m.vocab = 131;
  m.dropout = 0;
  complete_model(m);
  return m;
}

/// A small Llama with grouped queries.
inline ModelSpec tiny_llama() {
  ModelSpec m = *family_defaults("llama");
  m.layers = 2;
  m.hidden = 48;
  m.heads = 6;
  m.kv_heads = 3;
  m.ffn = 67;
  m.seq_len = 19;
  m.vocab = 97;
  m.dropout = 0;
  complete_model(m);
  return m;
}

inline RunSpec run_of(const ModelSpec& model, std::int64_t global_batch) {
  RunSpec run;
  run.model = model;
  run.seed = 77;
  run.train.seq_len = model.seq_len;
  run.train.global_batch = run.train.micro_batch = global_batch;
  run.train.steps = 10;
  run.optimizer.lr = 1e-2;
  run.schedule.warmup = 2;
  return run;
}

}  // namespace fourfold::testing
