#pragma once

#include <string>

#include "cli/options.h"

namespace fourfold::cli {

/// `fourfold ckpt ls|show|verify`, without the runtime library. Returns the exit code.
int inspect_checkpoint(const std::string& verb, const CkptOptions& options);

}  // namespace fourfold::cli
