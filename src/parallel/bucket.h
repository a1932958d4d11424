#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/parameter.h"

namespace fourfold {

/// Parameters that travel over their replicas (the data axis, or fewer ranks for experts) in one
/// operation, packed one after the other: first, of each, the rows that rank 0 of them updates,
/// then those of rank 1, and so on. For small ones, whose operations would be all latency.
class Bucket {
 public:
  Bucket(const Communicator& replicas, std::vector<Parameter*> parameters);

  bool empty() const { return parameters_.empty(); }
  /// Elements of each replica's part.
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
  /// Calls copy(packed, stored, bytes) for each piece of ranks [first, last).
  template <class Copy>
  void each_piece(const at::Tensor& packed, at::Tensor Parameter::* member, int first, int last,
                  Copy copy) const;

  std::vector<Parameter*> parameters_;
  int ranks_ = 1, rank_ = 0;  ///< Among the replicas.
  std::vector<std::int64_t> counts_;
};

/// Elements of the stored rows that each replica updates.
std::vector<std::int64_t> counts_of_replicas(const Communicator& replicas, const Parameter& p);

/// The parameters of a unit that one set of ranks replicates.
struct Replicated {
  Communicator* replicas = nullptr;
  std::vector<Parameter*> parameters;
};
/// All of a unit's, experts apart.
std::vector<Replicated> by_replicas(const ParallelContext& context,
                                    std::span<Parameter* const> parameters);

}  // namespace fourfold
