#pragma once

#include <optional>
#include <span>
#include <string>

#include "ckpt/catalog.h"
#include "ckpt/fs.h"
#include "ckpt/manifest.h"
#include "ckpt/state.h"

namespace fourfold {

/// Why a checkpoint is not one of these tensors: the first that it lacks (unless optional) or that
/// has another shape or dtype there. None where it fits. A checkpoint may hold more.
std::optional<Error> compare_tensors(const Manifest& manifest,
                                     std::span<const StateTensor> tensors);

/// Fills the tensors' regions from the files of a checkpoint that fits them, and of those that it
/// refers to, in one process: reads the files' headers and those stored regions that the wanted
/// ones meet, whole, for their CRCs. Sets `loaded`. Throws Error that names the file or tensor that
/// is damaged or not covered exactly once; the tensors hold anything then.
void read_tensors(const Fs& fs, const std::string& folder, const Manifest& manifest,
                  std::span<StateTensor> tensors);

}  // namespace fourfold
