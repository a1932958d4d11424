#include "train/dry_run.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/units.h"
#include "spec/counts.h"
#include "spec/run_config.h"

namespace fourfold {
namespace {

/// ceil(n / parts): the longest of uneven parts.
std::int64_t longest_part(std::int64_t n, std::int64_t parts) { return (n + parts - 1) / parts; }

}  // namespace

std::string describe_run(const RunSpec& run) {
  const GridShape& grid = run.parallel.grid;
  const std::int64_t parameters = count_parameters(run.model).total();
  const bool bf16 = run.train.precision == Precision::kBf16;
  const std::int64_t stored = longest_part(parameters, grid.x * grid.y * grid.z);
  const std::int64_t updated = run.memory.zero == 1 ? longest_part(stored, grid.data) : stored;
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
  return text;
}

}  // namespace fourfold
