#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/model_spec.h"

namespace fourfold {

/// Names of the presets, by size inside a family.
std::vector<std::string> preset_names();

/// The preset of this name, complete; none where there is none. Sources: GPT-2 and Llama as
/// published; axonn-*: the shapes of the AxoNN papers (sequence 2,048, MLP of 4·hidden, heads of
/// 128, vocabulary 51,200).
std::optional<ModelSpec> find_preset(std::string_view name);

/// A model of family "gpt" or "llama" without sizes; none for another family.
std::optional<ModelSpec> family_defaults(std::string_view family);

/// Fills what follows from other values where it is 0: kv_heads, head_dim, ffn, and with experts
/// moe.ffn.
void complete_model(ModelSpec& model);

}  // namespace fourfold
