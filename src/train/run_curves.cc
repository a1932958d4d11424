#include "train/run_curves.h"

#include <cmath>

#include "formats/json_lines.h"

namespace fourfold {
namespace {

RouterRecord router_record(NumberLine& line) {
  RouterRecord r;
  r.step = std::llround(line.numbers["step"]);
  r.layer = std::llround(line.numbers["router"]);
  const std::vector<double>& tokens = line.lists["tokens_per_expert"];
  r.tokens.assign(tokens.begin(), tokens.end());
  r.max_over_mean = line.numbers["max_over_mean"];
  r.entropy = line.numbers["entropy"];
  r.dropped = line.numbers["dropped"];
  r.aux_loss = line.numbers["aux_loss"];
  r.z_loss = line.numbers["z_loss"];
  return r;
}

/// What was trained from `step` on is gone: those steps are trained again.
void cut(RunCurves& curves, double step) {
  curves.restarts.push_back(step - 1);
  curves.steps.erase(curves.steps.lower_bound(step), curves.steps.end());
  curves.validations.erase(curves.validations.lower_bound(step), curves.validations.end());
  for (auto& [layer, by_step] : curves.routers) {
    by_step.erase(by_step.lower_bound(step), by_step.end());
  }
}

}  // namespace

RunCurves read_curves(const std::string& path) {
  RunCurves curves;
  double previous = 0;
  std::vector<NumberLine> lines = read_number_lines(path).value();
  for (NumberLine& line : lines) {
    RunCurves::Line& numbers = line.numbers;
    const double step = numbers["step"];
    if (numbers.contains("bytes")) continue;  // A checkpoint.
    if (numbers.contains("router")) {
      RouterRecord record = router_record(line);
      if (!record.tokens.empty()) curves.routers[record.layer][step] = std::move(record);
      continue;
    }
    if (!numbers.contains("loss") && !numbers.contains("lr")) {
      curves.validations[step] = std::move(numbers);
      continue;
    }
    if (step <= previous) cut(curves, step);
    previous = step;
    curves.steps[step] = std::move(numbers);
  }
  return curves;
}

}  // namespace fourfold
