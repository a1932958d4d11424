#include "train/dry_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/units.h"
#include "plan/memory_model.h"
#include "policy/checkpoint_bytes.h"
#include "spec/config_builder.h"
#include "spec/run_config.h"
#include "train/model_text.h"

namespace fourfold {
namespace {

/// How many blocks compute what again.
std::string recompute_text(const RunSpec& run) {
  const std::vector<std::string> names = EnumNames<Recompute>::get();
  std::string text = "blocks that compute again:";
  for (std::size_t kind = 0; kind < names.size(); ++kind) {
    const auto blocks = std::count(run.memory.by_block.begin(), run.memory.by_block.end(),
                                   static_cast<Recompute>(kind));
    if (blocks > 0) text += fmt::format(" {} {},", blocks, names[kind]);
  }
  text.pop_back();
  return text;
}

}  // namespace

std::string describe_run(const RunSpec& run) {
  const GridShape& grid = run.parallel.grid;
  const MemoryPrediction memory = predict_memory(run);
  const MemoryParts& peak = memory.peak();
  std::string text = resolved_toml(run);
  text += fmt::format("\n# grid x·y·z·data = {}, {} ranks, {} micro-batches a step\n", grid.name(),
                      grid.size(), run.accumulation());
  if (const std::string experts = experts_text(run); !experts.empty())
    text += "# " + experts + "\n";
  text += fmt::format(
      "# {}; memory of the fullest rank at its peak, which is {}:\n", parameters_text(run.model),
      &peak == &memory.head ? "at the head and the loss" : "in the backward of the last block");
  if (run.memory.recompute == Recompute::kBudget) text += "# " + recompute_text(run) + "\n";
  auto line = [&](const char* part, std::int64_t bytes) {
    text += fmt::format("#   {:<24} {}\n", part, format_bytes(bytes));
  };
  line("weights", peak.weights);
  line("gradients", peak.gradients);
  line("masters", peak.masters);
  line("moments", peak.moments);
  line("gathered weights", peak.gathered);
  line("gradients on their way", peak.scattering);
  line("activations", peak.activations);
  line("working", peak.working);
  line("together", peak.total());
  if (run.model.moe.experts > 0) {
    const std::int64_t worst = predict_memory(run, {}, ExpertLoad::kWorst).peak().total();
    line("if all take its experts", worst);
  }
  if (run.checkpoint.mode != "off" && run.checkpoint.async) {
    // Ranks write equal parts, to within a row.
    const std::int64_t copy =
        checkpoint_bytes(run.model, run.train.precision).total() / grid.size();
    text += fmt::format("# copies of checkpoints on their way: up to three of {} a rank, in {}\n",
                        format_bytes(copy),
                        run.checkpoint.memory_dir.empty() ? "memory" : run.checkpoint.memory_dir);
  }
  return text;
}

}  // namespace fourfold
