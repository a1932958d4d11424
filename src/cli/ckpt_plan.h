#pragma once

#include "cli/command.h"

namespace fourfold::cli {

/// `fourfold ckpt plan`: needs neither checkpoints nor the runtime.
Command ckpt_plan_command_line();

}  // namespace fourfold::cli
