#pragma once

namespace fourfold {

/// Sets how many threads LibTorch's operators and this project's kernels use when called from the
/// calling thread. Main calls it before it starts the rank threads (it also sets the default of
/// threads that come later), and each rank thread calls it first thing.
void set_intra_op_threads(int threads);

/// What set_intra_op_threads() set, at least 1.
int intra_op_threads();

/// Cores that this process may run on (its affinity mask, not the machine's number).
int available_cores();

/// max(1, available cores / ranks_on_node).
int default_intra_op_threads(int ranks_on_node);

}  // namespace fourfold
