#include "parallel/bucket.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "device/tensors.h"

namespace fourfold {
namespace {

void copy_in(char* packed, const char* stored, std::size_t bytes) {
  std::memcpy(packed, stored, bytes);
}
void copy_out(const char* packed, char* stored, std::size_t bytes) {
  std::memcpy(stored, packed, bytes);
}

}  // namespace

std::vector<std::int64_t> counts_of_replicas(const Communicator& replicas, const Parameter& p) {
  return split_counts(p.stored.dims[0].size(), replicas.size(), p.weight.size(1));
}

std::vector<Replicated> by_replicas(const ParallelContext& context,
                                    std::span<Parameter* const> parameters) {
  std::vector<Replicated> sets;
  for (Parameter* p : parameters) {
    Communicator& replicas = context.grid.replicas(p->spec.layout.expert_ranks);
    auto at = std::find_if(sets.begin(), sets.end(),
                           [&](const Replicated& set) { return set.replicas == &replicas; });
    if (at == sets.end()) at = sets.insert(at, Replicated{&replicas, {}});
    at->parameters.push_back(p);
  }
  return sets;
}

Bucket::Bucket(const Communicator& replicas, std::vector<Parameter*> parameters)
    : parameters_(std::move(parameters)),
      ranks_(replicas.size()),
      rank_(replicas.rank()),
      counts_(static_cast<std::size_t>(ranks_)) {
  for (const Parameter* p : parameters_) {
    const auto each = counts_of_replicas(replicas, *p);
    for (std::size_t r = 0; r < each.size(); ++r) counts_[r] += each[r];
  }
}

template <class Copy>
void Bucket::each_piece(const at::Tensor& packed, at::Tensor Parameter::* member, int first,
                        int last, Copy copy) const {
  char* place = static_cast<char*>(packed.mutable_data_ptr());
  for (int r = first; r < last; ++r) {
    for (const Parameter* p : parameters_) {
      const at::Tensor& stored = p->*member;
      const std::int64_t row = stored.size(1) * stored.element_size();
      const Range rows = split_range(stored.size(0), ranks_, r);
      copy(place, static_cast<char*>(stored.mutable_data_ptr()) + rows.begin * row,
           static_cast<std::size_t>(rows.size() * row));
      place += rows.size() * row;
    }
  }
}

at::Tensor Bucket::room(DType dtype) const {
  return empty_tensor({std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0})}, dtype);
}

at::Tensor Bucket::room_of_mine(DType dtype) const {
  return empty_tensor({counts_[static_cast<std::size_t>(rank_)]}, dtype);
}

at::Tensor Bucket::pack(at::Tensor Parameter::* member) const {
  at::Tensor packed = room(tensor_dtype(parameters_.front()->*member));
  each_piece(packed, member, 0, ranks_, copy_in);
  return packed;
}

at::Tensor Bucket::pack_mine(at::Tensor Parameter::* member) const {
  at::Tensor packed = room_of_mine(tensor_dtype(parameters_.front()->*member));
  each_piece(packed, member, rank_, rank_ + 1, copy_in);
  return packed;
}

void Bucket::unpack(const at::Tensor& packed, at::Tensor Parameter::* member) const {
  each_piece(packed, member, 0, ranks_, copy_out);
}

void Bucket::unpack_mine(const at::Tensor& packed, at::Tensor Parameter::* member) const {
  each_piece(packed, member, rank_, rank_ + 1, copy_out);
}

void Bucket::unpack_others(const at::Tensor& packed, at::Tensor Parameter::* member) const {
  const auto before = std::accumulate(counts_.begin(), counts_.begin() + rank_, std::int64_t{0});
  const auto up_to = before + counts_[static_cast<std::size_t>(rank_)];
  each_piece(packed, member, 0, rank_, copy_out);
  each_piece(packed.narrow(0, up_to, packed.numel() - up_to), member, rank_ + 1, ranks_, copy_out);
}

}  // namespace fourfold
