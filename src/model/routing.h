#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace fourfold {

/// Which experts the tokens of a step took, by block and number of the sequence within the step.
struct RoutingTable {
  struct Sequence {
    std::vector<std::int32_t> chosen;  ///< [seq, top_k], best first.
    std::vector<float> margin;         ///< [seq]: by how much the last choice beat the next expert.
  };
  std::map<std::pair<int, std::int64_t>, Sequence> sequences;
};

/// What the routers of one block saw in a step, added up over its tokens: of this (z, data) rank's,
/// or of all.
struct RouterTally {
  std::vector<double> tokens;  ///< By expert, dropped ones included.
  double dropped = 0;          ///< Assignments that found an expert full.
  double balance = 0;          ///< Σ over tokens and experts of f·p (Router).
  double z = 0;                ///< Σ over tokens of log²(Σ exp(logit)).
  double entropy = 0;          ///< Σ over tokens, in nats.
};

/// What the router of a block keeps between steps, the same on all ranks.
struct RouterMemory {
  std::vector<float> bias;           ///< Of each expert's score, for the choice alone.
  std::vector<std::int64_t> tokens;  ///< By expert, of the step before; all 0 before the first.
};

/// What the routers share in a pass, by block; dense blocks have empty places.
struct Routing {
  const std::vector<RouterMemory>* memory = nullptr;
  std::vector<RouterTally>* tally = nullptr;  ///< Null: nothing is counted.
  const RoutingTable* imposed = nullptr;      ///< Taken in place of the routers' own choices.
  RoutingTable* recorded = nullptr;  ///< Gets the choices; with those imposed, the own ones.
};

}  // namespace fourfold
