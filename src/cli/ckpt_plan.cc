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
  std::string k, scope, dp, ep;  ///< Of partial checkpoints of experts.
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
  if (name == "fp32x3") return Precision::kFp32x3;
  throw Error(ErrorKind::kUsage, fmt::format("--precision \"{}\" is not known", name),
              "fp32, fp32x3 or bf16");
}

void refuse_partial(const PlanOptions& o) {
  const std::pair<const char*, const std::string*> later[] = {
      {"--k", &o.k}, {"--scope", &o.scope}, {"--dp", &o.dp}, {"--ep", &o.ep}};
  for (const auto& [name, value] : later) {
    if (value->empty()) continue;
    throw Error(ErrorKind::kUsage, fmt::format("{} is not built yet", name),
                "it is for partial checkpoints of experts; leave it out");
  }
}

std::string to_json(const CheckpointBytes& b) {
  return fmt::format("{{\"weight\":{},\"master\":{},\"exp_avg\":{},\"exp_avg_sq\":{}}}", b.weight,
                     b.master, b.exp_avg, b.exp_avg_sq);
}

void print_line(const char* cls, const char* kind, std::int64_t bytes) {
  if (bytes == 0) return;
  fmt::print("{:<6} {:<11} {:>21} bytes {:>11}\n", cls, kind, format_count(bytes),
             format_bytes(bytes));
}

void print_class(const char* cls, const CheckpointBytes& b) {
  print_line(cls, "weight", b.weight);
  print_line(cls, "master", b.master);
  print_line(cls, "exp_avg", b.exp_avg);
  print_line(cls, "exp_avg_sq", b.exp_avg_sq);
}

int plan(const PlanOptions& o) {
  refuse_partial(o);
  const ModelSpec model = preset_of(o.preset);
  const Precision precision = precision_of(o.precision);
  const CheckpointBytes all = checkpoint_bytes(model, precision);
  const CheckpointBytes expert = expert_bytes(model, precision);
  const CheckpointBytes dense{all.weight - expert.weight, all.master - expert.master,
                              all.exp_avg - expert.exp_avg, all.exp_avg_sq - expert.exp_avg_sq};
  const std::int64_t parameters = count_parameters(model).total();
  if (o.json) {
    fmt::print(
        "{{\"preset\":\"{}\",\"precision\":\"{}\",\"parameters\":{},\"dense\":{},\"expert\":{},"
        "\"total\":{}}}\n",
        o.preset, o.precision, parameters, to_json(dense), to_json(expert), all.total());
    return 0;
  }
  fmt::print("{}, {} parameters, {}: the tensors of a checkpoint\n", o.preset,
             format_count(parameters), o.precision);
  print_class("dense", dense);
  print_class("expert", expert);
  print_line("total", "", all.total());
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
          "200 bytes a tensor. --k, --scope, --dp and --ep are for partial checkpoints of experts, "
          "which are not built yet.",
          {
              {"--preset", "P", "the model (docs/config.md lists them)", &o->preset, true},
              {"--precision", "P", "of the run: fp32, fp32x3 or bf16", &o->precision},
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
