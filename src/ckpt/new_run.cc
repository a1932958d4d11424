#include "ckpt/new_run.h"

#include <string_view>

#include "ckpt/catalog.h"
#include "policy/model_layers.h"
#include "spec/model_identity.h"
#include "spec/run_config.h"

namespace fourfold {

NewRun new_run(const Fs& fs, std::string out) {
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  constexpr std::string_view kSuffix = "/checkpoints";
  if (out == "checkpoints" || out.ends_with(kSuffix)) out = parent_path(out);
  NewRun run{out};
  const bool taken =
      fs.exists(run.run_file()) ||
      (fs.is_directory(run.checkpoints()) && read_catalog(fs, run.checkpoints()).has_history());
  if (taken) {
    throw Error(ErrorKind::kUsage, out + " is a run already", "choose another folder");
  }
  return run;
}

CheckpointMeta new_run_meta(const RunSpec& run) {
  CheckpointMeta meta;
  meta.run_id = run.dir;
  meta.model = model_name(run.model);
  meta.model_hash = model_hash(run.model);
  meta.zero = run.memory.zero;
  meta.seed = run.seed;
  meta.scalars = {{"updates", "0"}, {"tokens", "0"}};
  meta.config_toml = resolved_toml(run);
  return meta;
}

std::vector<OfflineTensor> new_run_state(const ModelSpec& model) {
  std::vector<OfflineTensor> state;
  for (const auto& p : parameters_of(model_layers(model, GridShape(), HeadLayout::kReduceLogits))) {
    for (const char* kind : {kKindMaster, kKindExpAvg, kKindExpAvgSq}) {
      state.push_back({{p.name, kind, DType::kF32, tensor_class(p), p.layout.shape}, p.layout});
    }
  }
  return state;
}

}  // namespace fourfold
