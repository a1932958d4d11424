#pragma once

#include <string>

#include "spec/model_spec.h"

namespace fourfold {

/// Identity of a model: all that changes what its tensors mean. Stored in checkpoints; a run goes
/// on only from its own. Rotary models may go on with longer sequences.
std::string model_hash(const ModelSpec& model);

/// For people: "gpt2-124m, 124,439,808 parameters"; of a mixture of experts also those that one
/// token uses: "gpt-125m-8e, 322,854,912 parameters (124,512,768 active)".
std::string model_name(const ModelSpec& model);

}  // namespace fourfold
