#pragma once

#include <string>

#include "spec/run_spec.h"

namespace fourfold {

/// "244,296 parameters", with experts "244,296 parameters (206,712 active)".
std::string parameters_text(const ModelSpec& model);

/// "experts 6, top 3, on 2 ranks", and a warning where balance is forced; "" for a dense model.
std::string experts_text(const RunSpec& run);

/// Whether experts are taken in turn, which every output must say.
bool forced_balance(const ModelSpec& model);

}  // namespace fourfold
