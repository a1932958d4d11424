#pragma once

#include <string_view>

namespace fourfold {

/// A named place where a test makes the process fail. FOURFOLD_FAULT="kill@NAME", "stop@NAME" or
/// "hang@NAME", optionally "…:N" for the N-th passage (from 1) and "…/R" for rank R only, sends
/// SIGKILL or SIGSTOP to the process, or makes the calling thread sleep for good. Costs one look at
/// the environment a passage, so it stands at steps and files, never in inner loops.
void fault_point(std::string_view name, int rank, long passage);

}  // namespace fourfold
