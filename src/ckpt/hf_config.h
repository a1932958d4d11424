#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/error.h"
#include "spec/model_spec.h"

namespace fourfold {

// config.json of Hugging Face model folders, as transformers versions 4 and 5 write them.

enum class HfFamily : std::uint8_t { kGpt2, kLlama, kQwen3, kMixtral, kQwen3Moe, kOlmoe };

/// "GPT-2", "Qwen3-MoE" and so on.
const char* hf_family_name(HfFamily family);

/// The family whose folder can hold a model; an Error (kData) that names the key of [model] that no
/// family has.
Result<HfFamily> hf_family_of(const ModelSpec& model);

/// The model that a config.json describes, but for settings that only training has a use for.
/// Members that are absent have the defaults of their family. `file` stands in messages. Refused
/// (kData), with the member's name: what is damaged or no size, other families, and every setting
/// that would change the model's output and that fourfold does not have (scaled rotary positions,
/// other activations, biases of attention or MLP alone, quantization, ...).
Result<ModelSpec> parse_hf_config(std::string_view text, const std::string& file);

/// config.json of a model of `family` (hf_family_of) whose weights are stored as `dtype`, readable
/// by transformers 4 and 5. `end_of_text`: the token after a document, if it is known. Families
/// with rotary positions have no place for fourfold's dropout, which does not change a trained
/// model: it is left out.
std::string hf_config_text(const ModelSpec& model, HfFamily family, DType dtype,
                           std::optional<std::int32_t> end_of_text);

/// generation_config.json.
std::string hf_generation_config_text(std::optional<std::int32_t> end_of_text);

}  // namespace fourfold
