#pragma once

#include <fmt/core.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/store.h"
#include "comm/thread_world.h"
#include "policy/held_region.h"
#include "policy/model_layers.h"
#include "spec/run_config.h"
#include "tests/crash/state_fixture.h"

namespace fourfold {

/// A run file of a small model whose sizes divide by nothing; `more` is added to it.
inline RunSpec model_run(const std::string& family, const GridShape& grid, int zero,
                         const std::vector<std::string>& more = {}) {
  const std::string text = fmt::format(
      "[run]\ndir = \"run\"\n[model]\nfamily = \"{}\"\nlayers = 2\nhidden = 30\nheads = 6\n"
      "kv_heads = {}\nffn = 37\nseq_len = 9\nvocab = 131\n[parallel]\nx = {}\ny = {}\nz = {}\n"
      "data = {}\n[memory]\nzero = {}\n[train]\nsteps = 4\nglobal_batch = 8\nmicro_batch = 1\n",
      family, family == "gpt" ? 6 : 2, grid.x, grid.y, grid.z, grid.data, zero);
  std::vector<std::string> overrides = {"model.head_dim=5"};
  if (family == "llama") overrides = {"model.head_dim=6"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return parse_run(text, "run.toml", overrides).value();
}

/// The whole of a tensor: any bits, the same on every grid.
inline std::vector<std::byte> model_bytes(const std::string& key,
                                          const std::vector<std::int64_t>& shape, DType dtype,
                                          int version) {
  const auto size = static_cast<std::size_t>(dtype_size(dtype));
  const std::int64_t count = Region::whole(shape).elements();
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size);
  const std::uint64_t stream = test_stream(key, version);
  for (std::int64_t i = 0; i < count; ++i) {
    // Bits without the sign and the top of the exponent: finite numbers below 2.
    const std::uint64_t bits = test_bits(stream, i) & 0x3f7f'3f7f'3f7f'3f7fu;
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * size, &bits, size);
  }
  return bytes;
}

/// The state of one rank of a run, as the trainer lists it.
class ModelState {
 public:
  ModelState(const RunSpec& run, int rank, int version) {
    const GridShape& shape = run.parallel.grid;
    const Grid grid(shape, run.parallel.order);
    const Coords at = grid.coords(WorldRank(rank));
    for (const auto& p : parameters_of(model_layers_of(run))) {
      const HeldRegion held = held_region(p.layout, grid, at, run.memory.zero != 0);
      for (const char* kind : {kKindWeight, kKindMaster, kKindExpAvg, kKindExpAvgSq}) {
        const bool weight = kind == std::string(kKindWeight);
        if (weight && run.train.precision != Precision::kBf16) continue;
        StateTensor t;
        t.name = p.name;
        t.kind = kind;
        t.dtype = weight ? DType::kBF16 : DType::kF32;
        t.cls = tensor_class(p);
        t.shape = p.layout.shape;
        t.region = held.region;
        t.replica = held.replica;
        t.replicas = held.replicas;
        t.replica_set = held.replica_set;
        add(std::move(t), version);
      }
    }
    for (int block = 0; block < run.model.layers && run.model.moe.experts > 0; ++block) {
      StateTensor t;
      t.name = fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", block);
      t.kind = "value";
      t.cls = TensorClass::kState;
      t.shape = {run.model.moe.experts};
      const HeldRegion held = held_by_all(t.shape, rank, grid.size());
      t.region = held.region;
      t.replica = held.replica;
      t.replicas = held.replicas;
      add(std::move(t), version);
    }
  }
  std::vector<StateTensor>& tensors() { return tensors_; }

 private:
  void add(StateTensor t, int version) {
    const auto whole = model_bytes(t.key(), t.shape, t.dtype, version);
    const std::int64_t size = dtype_size(t.dtype);
    storage_.push_back(std::make_unique<std::vector<std::byte>>(
        static_cast<std::size_t>(t.region.elements() * size)));
    t.data = storage_.back()->data();
    copy_region(t.region, Region::whole(t.shape), whole.data(), t.region, t.data, size);
    tensors_.push_back(std::move(t));
  }

  std::vector<StateTensor> tensors_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> storage_;
};

/// Saves the state of a run as its ranks do.
inline void save_run(Fs& fs, const std::string& dir, const RunSpec& run, int version) {
  CheckpointMeta meta = test_meta(7, run.parallel.grid, run.memory.zero);
  meta.config_toml = resolved_toml(run);
  run_thread_ranks(run.parallel.grid.size(), {}, [&](Communicator& world) {
    ModelState state(run, world.rank(), version);
    CheckpointStore store(fs, dir + "/checkpoints");
    store.save(world, meta, state.tensors()).value();
  });
}

}  // namespace fourfold
