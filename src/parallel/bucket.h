#pragma once

#include <cstdint>
#include <vector>

#include "parallel/parameter.h"

namespace fourfold {

/// Parameters that travel over the data axis in one operation, packed one after the other: first,
/// of each, the rows that data rank 0 updates, then those of data rank 1, and so on. For small
/// ones, whose operations would be all latency.
class Bucket {
 public:
  /// Parameters of fewer elements than this are better off packed.
  static constexpr std::int64_t kSmall = 1 << 15;

  Bucket(const ParallelContext& context, std::vector<Parameter*> parameters);

  bool empty() const { return parameters_.empty(); }
  /// Elements of each data rank's part.
  const std::vector<std::int64_t>& counts() const { return counts_; }

  /// Room for all parts, or for this rank's.
  at::Tensor room(DType dtype) const;
  at::Tensor room_of_mine(DType dtype) const;

  /// What `member` (gradient, weight) holds: all of it, or what this rank updates.
  at::Tensor pack(at::Tensor Parameter::* member) const;
  at::Tensor pack_mine(at::Tensor Parameter::* member) const;
  void unpack(const at::Tensor& packed, at::Tensor Parameter::* member) const;
  void unpack_others(const at::Tensor& packed, at::Tensor Parameter::* member) const;
  void unpack_mine(const at::Tensor& packed, at::Tensor Parameter::* member) const;

 private:
  /// Calls copy(packed, stored, bytes) for each piece of data ranks [first, last).
  template <class Copy>
  void each_piece(const at::Tensor& packed, at::Tensor Parameter::* member, int first, int last,
                  Copy copy) const;

  std::vector<Parameter*> parameters_;
  int ranks_ = 1, rank_ = 0;  ///< Of the data axis.
  std::vector<std::int64_t> counts_;
};

/// Elements of the stored rows that each data rank updates.
std::vector<std::int64_t> counts_over_data(const ParallelContext& context, const Parameter& p);

}  // namespace fourfold
