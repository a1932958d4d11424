#pragma once

#include <string>

#include "data/commands.h"
#include "train/commands.h"

namespace fourfold {

/// `fourfold ckpt ls|show|verify`: a run folder, its checkpoints/, or one step of it.
struct CkptOptions {
  std::string dir;
};

}  // namespace fourfold
