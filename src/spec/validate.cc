#include "spec/validate.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "spec/validate_moe.h"

namespace fourfold {
namespace {

using Found = std::optional<Problem>;

Found check_sizes(const ModelSpec& m) {
  const auto missing = [&](std::int64_t value, const char* name) -> Found {
    if (value > 0) return std::nullopt;
    return Problem{fmt::format("model.{}", name), fmt::format("model.{} is not given", name),
                   "give model.preset, or all of layers, hidden, heads, seq_len, vocab"};
  };
  const std::pair<std::int64_t, const char*> sizes[] = {{m.layers, "layers"},
                                                        {m.hidden, "hidden"},
                                                        {m.heads, "heads"},
                                                        {m.seq_len, "seq_len"},
                                                        {m.vocab, "vocab"}};
  for (const auto& [value, name] : sizes) {
    if (auto found = missing(value, name)) return found;
  }
  return std::nullopt;
}

Found check_heads(const RunSpec& run) {
  const ModelSpec& m = run.model;
  const bool own_width = run.origins.contains("model.head_dim");
  if (!own_width && m.head_dim * m.heads != m.hidden) {
    return Problem{"model.heads",
                   fmt::format("{} heads do not divide a width of {}", m.heads, m.hidden),
                   "change model.heads or model.hidden, or give model.head_dim"};
  }
  if (m.head_dim == 0) {
    return Problem{"model.heads", "heads have no width", "give fewer model.heads"};
  }
  if (m.heads % m.kv_heads != 0) {
    return Problem{"model.kv_heads",
                   fmt::format("{} key/value heads do not divide {} heads", m.kv_heads, m.heads),
                   "each key/value head serves the same number of heads"};
  }
  if (m.position == Position::kRotary && m.head_dim % 2 != 0) {
    return Problem{"model.head_dim",
                   fmt::format("rotary positions need an even head_dim, not {}", m.head_dim),
                   "change model.head_dim, model.heads or model.hidden"};
  }
  return std::nullopt;
}

Found check_amounts(const TrainSpec& train) {
  if (train.steps == 0 && train.tokens == 0) {
    return Problem{"train.steps", "neither train.steps nor train.tokens is given",
                   "say how long to train: train.steps = 1000"};
  }
  if (train.global_batch == 0) {
    return Problem{"train.global_batch", "train.global_batch is not given",
                   "say how many sequences a step takes: train.global_batch = 32"};
  }
  if (train.micro_batch == 0) {
    return Problem{"train.micro_batch", "train.micro_batch is not given",
                   "say how many sequences one forward pass takes: train.micro_batch = 8"};
  }
  return std::nullopt;
}

Found check_lengths(const RunSpec& run) {
  const std::int64_t longest = run.model.seq_len;
  if (run.train.seq_len > longest) {
    return Problem{
        "train.seq_len",
        fmt::format("train.seq_len {} is more than the model's {}", run.train.seq_len, longest),
        "lower train.seq_len or raise model.seq_len"};
  }
  const std::int64_t wanted = run.train.global_batch * run.train.seq_len;
  const std::int64_t steps = run.train.tokens / wanted + (run.train.tokens % wanted != 0);
  if (run.train.tokens != 0 && run.train.steps != steps) {
    return Problem{"train.tokens",
                   fmt::format("train.tokens {} are {} steps, but train.steps is {}",
                               run.train.tokens, steps, run.train.steps),
                   "give one of train.steps and train.tokens"};
  }
  return std::nullopt;
}

Found check_schedule(const RunSpec& run) {
  const ScheduleSpec& s = run.schedule;
  if (s.min_lr > run.optimizer.lr) {
    return Problem{
        "schedule.min_lr",
        fmt::format("schedule.min_lr {} is above optimizer.lr {}", s.min_lr, run.optimizer.lr),
        "lower schedule.min_lr"};
  }
  if (s.warmup > run.train.steps) {
    return Problem{"schedule.warmup",
                   fmt::format("schedule.warmup {} is longer than the {} steps of the run",
                               s.warmup, run.train.steps),
                   "lower schedule.warmup or train longer"};
  }
  if (s.kind == ScheduleKind::kWsd && s.warmup + s.decay > run.train.steps) {
    return Problem{"schedule.decay",
                   fmt::format("schedule.warmup {} and schedule.decay {} exceed the {} steps",
                               s.warmup, s.decay, run.train.steps),
                   "lower one of them or train longer"};
  }
  return std::nullopt;
}

Found check_memory(const MemorySpec& memory) {
  const bool by_budget = memory.recompute == Recompute::kBudget;
  if (by_budget && memory.budget == 0) {
    return Problem{"memory.recompute", "memory.recompute \"budget\" needs memory.budget",
                   "give the bytes that a rank may take: memory.budget = \"8GiB\""};
  }
  if (!by_budget && memory.budget > 0) {
    return Problem{"memory.budget",
                   "memory.budget does nothing without memory.recompute \"budget\"",
                   "set memory.recompute = \"budget\" or leave memory.budget out"};
  }
  return std::nullopt;
}

Found check_axes(const ParallelSpec& parallel) {
  int open = 0;
  double ranks = 1;
  for (Axis axis : kAllAxes) {
    const int size = parallel.grid[axis];
    const std::string key = fmt::format("parallel.{}", axis_name(axis));
    if (size == 0 || size < -1) {
      return Problem{key, fmt::format("{} must be at least 1, or -1 for what is left", key),
                     "1 where the axis is not used"};
    }
    open += size == -1;
    ranks *= size == -1 ? 1 : size;
    if (open > 1) {
      return Problem{key, "more than one of x, y, z, data is -1", "leave only one of them open"};
    }
  }
  constexpr double kMaxRanks = 1e7;
  if (ranks > kMaxRanks) {
    return Problem{"parallel.x", fmt::format("x·y·z·data is {} ranks", ranks),
                   "at most 10 million ranks are counted"};
  }
  if (!Grid::valid_order(parallel.order)) {
    return Problem{"parallel.order",
                   fmt::format("parallel.order \"{}\" is no order of the axes", parallel.order),
                   "a permutation of the letters x, y, z, d: \"yxzd\""};
  }
  return std::nullopt;
}

bool fits_x(const ModelSpec& m, int x) {
  return m.heads % x == 0 && (m.kv_heads % x == 0 || x % m.kv_heads == 0);
}

Found check_split_heads(const RunSpec& run) {
  const ModelSpec& m = run.model;
  const int x = run.parallel.grid.x;
  if (fits_x(m, x)) return std::nullopt;
  const std::string hint = fmt::format("parallel.x can be {}", fmt::join(possible_x(m), ", "));
  if (m.heads % x != 0) {
    return Problem{"parallel.x", fmt::format("{} heads cannot be cut over x = {}", m.heads, x),
                   hint};
  }
  return Problem{
      "parallel.x",
      fmt::format("{} key/value heads can be neither cut over nor shared by x = {}", m.kv_heads, x),
      hint};
}

Found check_batch(const RunSpec& run) {
  const std::int64_t micro = run.train.micro_batch;
  const std::int64_t columns =
      static_cast<std::int64_t>(run.parallel.grid.z) * run.parallel.grid.data;
  const std::int64_t pass = micro * columns;
  const std::int64_t batch = run.train.global_batch;
  if (batch % pass == 0) return std::nullopt;
  const std::int64_t below = batch / pass * pass;
  std::string near = fmt::format("{}", below + pass);
  if (below > 0) near = fmt::format("{} or {}", below, near);
  return Problem{
      "train.global_batch",
      fmt::format("train.global_batch {} is no multiple of micro_batch·z·data = {}·{}·{} = {}",
                  batch, micro, run.parallel.grid.z, run.parallel.grid.data, pass),
      fmt::format("nearest: {}; or another train.micro_batch", near)};
}

}  // namespace

Found check_run(const RunSpec& run) {
  if (auto found = check_sizes(run.model)) return found;
  if (auto found = check_heads(run)) return found;
  if (auto found = check_amounts(run.train)) return found;
  if (auto found = check_lengths(run)) return found;
  if (auto found = check_schedule(run)) return found;
  if (auto found = check_moe(run)) return found;
  if (auto found = check_memory(run.memory)) return found;
  return check_axes(run.parallel);
}

Found check_grid(const RunSpec& run) {
  if (auto found = check_split_heads(run)) return found;
  if (auto found = check_expert_grid(run)) return found;
  return check_batch(run);
}

std::vector<int> possible_x(const ModelSpec& model) {
  std::vector<int> found;
  for (int x = 1; x <= model.heads; ++x) {
    if (fits_x(model, x)) found.push_back(x);
  }
  return found;
}

Error to_error(const RunSpec& run, const Problem& problem) {
  const auto at = run.origins.find(problem.key);
  const std::string where = at == run.origins.end() ? "" : at->second + ": ";
  return Error(ErrorKind::kUsage, where + problem.message, problem.hint);
}

}  // namespace fourfold
