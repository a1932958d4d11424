#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "ckpt/fs.h"

namespace fourfold {

// Checkpoints from and to Hugging Face model folders (docs/cookbook.md), in one process, without
// the model: in memory at a time are one tensor of the folder and one of the checkpoint. All throw
// Error, and return what was done, for people.

struct HfExportOptions {
  DType dtype = DType::kF32;  ///< Or kBF16: masters rounded to the nearest.
  std::uint64_t max_shard_bytes = 5'000'000'000;
};

/// Writes the masters of a checkpoint (a path as in ckpt/commands.h) as a folder that transformers
/// loads: weights, config.json, generation_config.json, and the tokenizer that the run names, where
/// it is still there. The folder appears whole or not at all. Errors: kUsage where `out` is there
/// and not empty; kData for a damaged checkpoint, a model that no family has a place for, or a disk
/// that is full.
std::string export_hf(const Fs& fs, const std::string& checkpoint, const std::string& out,
                      const HfExportOptions& options);

/// Makes a run folder of a model folder: checkpoints/step-00000000 with masters, zero moments and
/// no updates, and the run file config.toml, which goes on training from it. Tensors may be F32,
/// BF16 or F16; what is not learned (masks) is passed over. The checkpoint serves fp32 and bf16
/// runs. `overrides` ("train.steps=100") are values of the run file; nothing of [model] may change
/// what tensors there are. Errors: kUsage where `out` is a run already, or of an override; kData
/// with the member or tensor that is missing, of another shape or not supported.
std::string import_hf(Fs& fs, const std::string& folder, const std::string& out,
                      const std::vector<std::string>& overrides);

}  // namespace fourfold
