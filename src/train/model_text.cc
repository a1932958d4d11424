#include "train/model_text.h"

#include <fmt/core.h>

#include "base/units.h"
#include "spec/counts.h"

namespace fourfold {

std::string parameters_text(const ModelSpec& model) {
  const ParameterCount count = count_parameters(model);
  const std::string total = format_count(count.total()) + " parameters";
  if (model.moe.experts == 0) return total;
  return fmt::format("{} ({} active)", total, format_count(count.active()));
}

std::string experts_text(const RunSpec& run) {
  const MoeSpec& moe = run.model.moe;
  if (moe.experts == 0) return "";
  std::string text = fmt::format("experts {}, top {}", moe.experts, moe.top_k);
  if (moe.shared_experts > 0) text += fmt::format(", {} shared", moe.shared_experts);
  const int ranks = run.parallel.expert;
  text += fmt::format(", on {} {}", ranks, ranks == 1 ? "rank" : "ranks");
  if (forced_balance(run.model)) {
    text += "; balance is forced: experts in turn, for measuring speed, not for training";
  }
  return text;
}

bool forced_balance(const ModelSpec& model) {
  return model.moe.experts > 0 && model.moe.balance == Balance::kForced;
}

}  // namespace fourfold
