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
/// 128, vocabulary 51,200); gpt-125m-8e and gpt-350m-16e: the models of the partial experts
/// checkpoint (arXiv 2408.04307, table 1); olmoe-1b-7b: arXiv 2409.02060, but for its norm of
/// queries and keys, which the model does not have; mixtral-small and qwen3-moe-small: those
/// models' proportions (arXiv 2401.04088, 2505.09388), the latter too without norms of queries and
/// keys and with heads of hidden / heads. The other mixtures are for tests and the quickstart.
std::optional<ModelSpec> find_preset(std::string_view name);

/// A model of family "gpt" or "llama" without sizes; none for another family.
std::optional<ModelSpec> family_defaults(std::string_view family);

/// Fills what follows from other values where it is 0: kv_heads, head_dim, ffn, and with experts
/// moe.ffn.
void complete_model(ModelSpec& model);

}  // namespace fourfold
