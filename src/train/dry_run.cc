#include "train/dry_run.h"

#include <fmt/core.h>

#include "base/units.h"
#include "policy/checkpoint_bytes.h"
#include "policy/model_layers.h"
#include "spec/counts.h"
#include "spec/run_config.h"

namespace fourfold {
namespace {

/// Elements that rank (0, 0, 0, 0) keeps: uneven cuts give the first ranks one more.
struct Elements {
  std::int64_t stored = 0;
  std::int64_t updated = 0;
};

Elements elements_of_first_rank(const RunSpec& run) {
  const Grid grid(run.parallel.grid, run.parallel.order);
  Elements elements;
  for (const ParameterSpec& p :
       parameters_of(model_layers(run.model, grid.shape(), head_layout_of(run)))) {
    elements.stored += p.layout.stored(grid, {}).elements();
    elements.updated += p.layout.updated(grid, {}, run.memory.zero == 1).elements();
  }
  return elements;
}

}  // namespace

std::string describe_run(const RunSpec& run) {
  const GridShape& grid = run.parallel.grid;
  const std::int64_t parameters = count_parameters(run.model).total();
  const bool bf16 = run.train.precision == Precision::kBf16;
  const auto [stored, updated] = elements_of_first_rank(run);
  const std::int64_t weight = bf16 ? 2 : 4;
  const std::int64_t master = bf16 ? 4 : 0;  // In fp32 the weight is the master.
  std::string text = resolved_toml(run);
  text += fmt::format("\n# grid x·y·z·data = {}, {} ranks, {} micro-batches a step\n", grid.name(),
                      grid.size(), run.accumulation());
  text +=
      fmt::format("# {} parameters; state of a rank (without what is replicated over x or y):\n",
                  format_count(parameters));
  auto line = [&](const char* part, std::int64_t bytes) {
    text += fmt::format("#   {:<12} {}\n", part, format_bytes(bytes));
  };
  line("weights", weight * stored);
  line("gradients", 4 * stored);
  line("masters", master * updated);
  line("moments", 8 * updated);
  line("together", (weight + 4) * stored + (master + 8) * updated);
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
