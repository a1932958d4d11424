#pragma once

#include <cstddef>
#include <functional>

namespace fourfold {

/// Pieces of work shared by some threads: the calling one and others that live for the length of a
/// call. Each takes the next piece when it is done with one, so that one that is held up by other
/// work does less.
class WorkShare {
 public:
  /// `threads` at the most; fewer where they cannot be had.
  explicit WorkShare(int threads) : threads_(threads) {}

  /// Calls piece(i) for i in [0, pieces), each once, on any of the threads; it throws nothing.
  void run(std::size_t pieces, const std::function<void(std::size_t)>& piece);

  /// CPU time so far of the threads besides the calling one.
  double others_cpu_seconds() const { return others_cpu_seconds_; }

 private:
  int threads_;
  double others_cpu_seconds_ = 0;
};

}  // namespace fourfold
