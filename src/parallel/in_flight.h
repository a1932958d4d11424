#pragma once

#include <ATen/core/TensorBody.h>

#include <utility>
#include <vector>

#include "comm/work.h"

namespace fourfold {

/// Operations in flight together with the tensors that they read and write, which therefore live as
/// long as they must. Move-only; a value that dies unwaited waits.
class InFlight {
 public:
  InFlight() = default;
  InFlight(std::vector<at::Tensor> tensors, std::vector<Work> works)
      : tensors_(std::move(tensors)), works_(std::move(works)) {}

  /// Returns when all operations are done. Throws Error.
  void wait() {
    for (Work& work : works_) work.wait_stream();
    works_.clear();
  }

 private:
  std::vector<at::Tensor> tensors_;
  std::vector<Work> works_;  ///< After the tensors, so that they go first.
};

}  // namespace fourfold
