// The logits of a checkpoint's model, for tests that compare them with another program's.
//
// usage: logits_tool DIR OUT TOKEN...
//
// Writes f32 [tokens, vocabulary] to OUT: row i are the logits after tokens 0..i.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "ckpt/commands.h"
#include "ckpt/store.h"
#include "comm/communicator.h"
#include "device/tensors.h"
#include "model/transformer.h"
#include "spec/run_config.h"

namespace fourfold {
namespace {

/// The masters of a checkpoint as the model's weights, on one rank in f32.
void load(Fs& fs, const std::string& path, Communicator& world, Transformer& model) {
  const CheckpointPath found = find_checkpoints(fs, path).value();
  std::vector<StateTensor> state;
  for (Parameter* p : model.parameters()) {
    StateTensor& t = state.emplace_back();
    t.name = p->spec.name;
    t.kind = kKindMaster;
    t.shape = p->spec.layout.shape;
    t.region = p->updated;
    t.data = p->master.mutable_data_ptr();
  }
  CheckpointStore(fs, found.dir).load(world, found.folder, state).value();
  for (const ParameterUnit& unit : model.units()) unit.refresh_vectors();
}

void write_logits(const std::string& path, const std::string& out,
                  const std::vector<std::int64_t>& tokens) {
  PosixFs fs;
  const RunSpec run = parse_run(checkpoint_peek(fs, path).value().config_toml, path).value();
  const auto world = make_solo();
  ProcessGrid grid(Grid(GridShape()), *world);
  const ParallelContext context{grid, DType::kF32, true, run.seed, false};
  Transformer model(context, run.model, {});
  load(fs, path, *world, model);
  std::vector<KvCache> caches = model.make_caches(1, static_cast<std::int64_t>(tokens.size()));
  std::ofstream file(out, std::ios::binary);
  for (const std::int64_t token : tokens) {
    MicroBatch batch;
    batch.seq = 1;
    batch.tokens = empty_tensor({1}, DType::kI64);
    *elements<std::int64_t>(batch.tokens) = token;
    batch.samples = {0};
    const at::Tensor logits = model.decode(batch, caches);
    file.write(reinterpret_cast<const char*>(elements<float>(logits)),
               static_cast<std::streamsize>(logits.numel() * sizeof(float)));
  }
}

}  // namespace
}  // namespace fourfold

int main(int argc, char** argv) {
  std::vector<std::int64_t> tokens;
  for (int i = 3; i < argc; ++i) tokens.push_back(std::atoll(argv[i]));
  try {
    fourfold::write_logits(argv[1], argv[2], tokens);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
