#include "cli/ckpt_plan.h"

#include <fmt/core.h>

#include <memory>

#include "base/error.h"
#include "base/suggest.h"
#include "base/units.h"
#include "policy/checkpoint_bytes.h"
#include "spec/counts.h"
#include "spec/presets.h"

namespace fourfold::cli {
namespace {

struct PlanOptions {
  std::string preset;
  std::string precision = "fp32";
  std::string k, scope, dp, ep;  ///< Of models with experts.
  bool json = false;
};

ModelSpec preset_of(const std::string& name) {
  if (auto model = find_preset(name)) return *model;
  const std::string near = closest(name, preset_names());
  throw Error(ErrorKind::kUsage, fmt::format("no preset \"{}\"", name),
              near.empty() ? "docs/config.md lists the presets"
                           : fmt::format("did you mean \"{}\"?", near));
}

Precision precision_of(const std::string& name) {
  if (name == "fp32") return Precision::kFp32;
  if (name == "bf16") return Precision::kBf16;
  throw Error(ErrorKind::kUsage, fmt::format("--precision \"{}\" is not known", name),
              "fp32 or bf16");
}

void refuse_experts(const PlanOptions& o) {
  const std::pair<const char*, const std::string*> later[] = {
      {"--k", &o.k}, {"--scope", &o.scope}, {"--dp", &o.dp}, {"--ep", &o.ep}};
  for (const auto& [name, value] : later) {
    if (value->empty()) continue;
    throw Error(ErrorKind::kUsage, fmt::format("{} is not built yet", name),
                "it is for models with experts; leave it out");
  }
}

int plan(const PlanOptions& o) {
  refuse_experts(o);
  const ModelSpec model = preset_of(o.preset);
  const CheckpointBytes bytes = checkpoint_bytes(model, precision_of(o.precision));
  const std::int64_t parameters = count_parameters(model).total();
  if (o.json) {
    fmt::print(
        "{{\"preset\":\"{}\",\"precision\":\"{}\",\"parameters\":{},\"dense\":{{\"weight\":{},"
        "\"master\":{},\"exp_avg\":{},\"exp_avg_sq\":{}}},\"total\":{}}}\n",
        o.preset, o.precision, parameters, bytes.weight, bytes.master, bytes.exp_avg,
        bytes.exp_avg_sq, bytes.total());
    return 0;
  }
  fmt::print("{}, {} parameters, {}: the tensors of a checkpoint\n", o.preset,
             format_count(parameters), o.precision);
  const auto line = [](const char* cls, const char* kind, std::int64_t n) {
    if (n > 0)
      fmt::print("{:<6} {:<11} {:>21} bytes {:>11}\n", cls, kind, format_count(n), format_bytes(n));
  };
  line("dense", "weight", bytes.weight);
  line("dense", "master", bytes.master);
  line("dense", "exp_avg", bytes.exp_avg);
  line("dense", "exp_avg_sq", bytes.exp_avg_sq);
  line("total", "", bytes.total());
  return 0;
}

}  // namespace

Command ckpt_plan_command_line() {
  auto o = std::make_shared<PlanOptions>();
  const auto later = [](const char* name, const char* value, const char* doc, std::string* target) {
    return Option{name, value, doc, target, false, 0, 0, false, "none"};
  };
  return {"ckpt plan",
          "says how large a checkpoint will be",
          "Prints the bytes of a checkpoint's tensors by class and kind, exactly, without running "
          "anything: they are the same on every grid. Headers and the manifest come on top, about "
          "200 bytes a tensor. --k, --scope, --dp and --ep are for models with experts, which are "
          "not built yet.",
          {
              {"--preset", "P", "the model (docs/config.md lists them)", &o->preset, true},
              {"--precision", "P", "of the run: fp32 or bf16", &o->precision},
              later("--k", "N", "experts of a layer that a checkpoint holds", &o->k),
              later("--scope", "KINDS", "what is partial of the other experts", &o->scope),
              later("--dp", "N", "size of the data axis", &o->dp),
              later("--ep", "N", "size of the expert axis", &o->ep),
              {"--json", "", "print JSON in place of a table", &o->json},
          },
          {"fourfold ckpt plan --preset gpt2-124m --precision bf16"},
          [o] { return plan(*o); }};
}

}  // namespace fourfold::cli
