#include "train/step_record.h"

#include <nlohmann/json.hpp>

namespace fourfold {

std::string to_json(const StepRecord& r) {
  nlohmann::ordered_json line{{"step", r.step},
                              {"loss", r.loss},
                              {"grad_norm", r.grad_norm},
                              {"lr", r.lr},
                              {"tokens", r.tokens},
                              {"tokens_per_second", r.tokens_per_second},
                              {"step_seconds", r.step_seconds},
                              {"mfu", r.mfu}};
  if (r.skipped) line["skipped"] = true;
  return line.dump();
}

std::string to_json(const ValidationRecord& r) {
  return nlohmann::ordered_json{{"step", r.step}, {"val_loss", r.val_loss}, {"tokens", r.tokens}}
      .dump();
}

}  // namespace fourfold
