#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ckpt/state.h"
#include "comm/communicator.h"
#include "model/routing.h"
#include "spec/model_spec.h"

namespace fourfold {

/// What the routers of a model keep between steps and count within one; nothing for a dense model.
class Routers {
 public:
  explicit Routers(const ModelSpec& model);

  /// For a pass that counts, and for one that does not.
  Routing counting() { return {&memory_, &tally_, imposed_, recorded_}; }
  Routing reading() const { return {&memory_, nullptr, nullptr, nullptr}; }
  /// Counting passes take these choices, and keep theirs in `recorded`; null: neither. Both outlive
  /// their use.
  void impose(const RoutingTable* imposed, RoutingTable* recorded) {
    imposed_ = imposed;
    recorded_ = recorded;
  }

  void begin_step();
  /// Makes the counts those of all ranks. Collective over z·data.
  void sum(Communicator& ranks);
  /// The step was applied: bias and counts are those for the next.
  void update();

  /// What is kept, by block.
  const std::vector<RouterMemory>& memory() const { return memory_; }
  void set_memory(std::vector<RouterMemory> memory) { memory_ = std::move(memory); }

  /// Of the step, by block; empty places for dense blocks.
  const std::vector<RouterTally>& tally() const { return tally_; }
  /// The losses that the step's tokens added: to be read after sum().
  double aux_loss(std::int64_t tokens) const;
  double z_loss(std::int64_t tokens) const;

  /// Adds what is kept to a rank's state; every rank of the `world_size` holds all of it.
  void add_state(int rank, int world_size, std::vector<StateTensor>& state);

 private:
  MoeSpec spec_;
  std::vector<RouterMemory> memory_;
  std::vector<RouterTally> tally_;
  const RoutingTable* imposed_ = nullptr;
  RoutingTable* recorded_ = nullptr;
};

}  // namespace fourfold
