// Lanes of the suite: that they do not wait for each other, and that more of them than threads get
// through.
#include <memory>
#include <stdexcept>
#include <string>

#include "tests/threads/collective_suite.h"

namespace fourfold::suite {

std::vector<int> range(int begin, int end, int step) {
  std::vector<int> ranks;
  for (int r = begin; r < end; r += step) ranks.push_back(r);
  return ranks;
}

/// An operation of one group that waits for a peer holds up none of another group's in a lane of
/// the same kind: rank 1 joins the first only once rank 0 has the second behind it.
void lanes_apart(Communicator& world) {
  const int me = world.rank(), n = world.size();
  if (n < 2) return;
  const auto late = world.subgroup(range(0, n), "late");
  const auto early = world.subgroup(range(0, n), "early");
  for (const Lane lane : {Lane::kGather, Lane::kReduce, Lane::kScatter}) {
    std::vector<float> first(1000, 1.0f), second(1000, 1.0f);
    const Buffer first_buffer{first.data(), 1000, DType::kF32};
    const Buffer second_buffer{second.data(), 1000, DType::kF32};
    Work blocked, free;
    if (me != 1) blocked = late->all_reduce(first_buffer, ReduceOp::kSum, lane);
    free = early->all_reduce(second_buffer, ReduceOp::kSum, lane);
    free.wait_host();
    if (me != 1 && blocked.done()) throw std::runtime_error("a sum without one of its ranks");
    world.barrier().wait_host();
    if (me == 1) blocked = late->all_reduce(first_buffer, ReduceOp::kSum, lane);
    blocked.wait_host();
    if (first[999] != static_cast<float>(n) || second[0] != static_cast<float>(n)) {
      throw std::runtime_error("two lanes of one kind: wrong sums");
    }
  }
}

/// More lanes than there are threads for: those that share one still get through.
void many_groups(Communicator& world) {
  constexpr int kGroups = 60;
  std::vector<std::unique_ptr<Communicator>> groups;
  std::vector<float> data(kGroups, 1.0f);
  std::vector<Work> works;
  for (int g = 0; g < kGroups; ++g) {
    groups.push_back(world.subgroup(range(0, world.size()), "group " + std::to_string(g)));
    const Buffer own{&data[static_cast<std::size_t>(g)], 1, DType::kF32};
    works.push_back(groups.back()->all_reduce(own, ReduceOp::kSum, Lane::kReduce));
  }
  for (Work& work : works) work.wait_host();
  for (const float sum : data) {
    if (sum != static_cast<float>(world.size())) throw std::runtime_error("many groups: wrong sum");
  }
}

}  // namespace fourfold::suite
