#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ckpt/hf_config.h"
#include "spec/model_spec.h"

namespace fourfold {

/// A tensor of a Hugging Face folder and the parameters that it is made of. All parts have the same
/// shape.
struct HfTensor {
  std::string name;  ///< As the family's class in transformers saves it.
  std::vector<std::int64_t> shape;
  std::vector<std::string> parts;  ///< Ours: one, or q, k, v side by side.
  std::vector<std::int64_t> part_shape;
  /// GPT-2's Conv1D: stored [in, parts · out], ours are [out, in]; else parts lie one behind the
  /// other.
  bool transposed = false;
};

/// The tensors that the folder of a model holds, in the order of the forward pass. A tied head has
/// none.
std::vector<HfTensor> hf_tensors(const ModelSpec& model, HfFamily family);

/// The f32 elements that a buffer of bytes holds.
std::span<float> floats_of(std::vector<std::byte>& bytes);

/// Copies part number `part`, dense and row-major, to or from its place in the whole tensor.
void put_hf_part(const HfTensor& tensor, std::size_t part, std::span<const float> ours,
                 std::span<float> whole);
void take_hf_part(const HfTensor& tensor, std::size_t part, std::span<const float> whole,
                  std::span<float> ours);

/// The name without what model classes put before it: "h.0.ln_1.weight" of
/// "transformer.h.0.ln_1.weight", "layers.0..." of "model.layers.0...".
std::string bare_hf_name(const std::string& name, HfFamily family);

/// Whether a tensor of this bare name holds nothing that is learned (masks, rotary frequencies), or
/// a tied head over again: import passes it over.
bool is_ignored_hf_tensor(const std::string& bare_name, const ModelSpec& model, HfFamily family);

}  // namespace fourfold
