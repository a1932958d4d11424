#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/other_choices.h"
#include "train/verify_reference.h"

namespace fourfold {

/// How far a grid may be from one rank (design: "What the same means", across grids). Differences
/// of gradients are relative L2 norms, over the whole model and for the worst single tensor, whose
/// denominator is at least 1e-3 of the model's norm.
struct VerifyTolerance {
  double loss = 1e-5;
  double gradient = 1e-5;
  double tensor = 1e-4;
  double near_tie = 1e-4;  ///< The largest margin by which a router's choice may be another.
};
/// For fp32 the defaults; fp32x3 leaves out 2^-17 of every product, bf16 rounds about 2^-8, so that
/// only gross errors show.
VerifyTolerance verify_tolerance(Precision precision);

/// What was found on one grid; the same on every rank.
struct VerifyResult {
  bool initial_weights_equal = true;  ///< Bit by bit.
  double loss_difference = 0;         ///< Largest of the free run and of the steps compared.
  double gradient_difference = 0;
  double tensor_difference = 0;
  std::string worst_tensor;
  /// CRC-32C over the losses of both runs and the gradients of the steps compared, in rank order:
  /// equal bits, equal hash, whatever the backend.
  std::uint32_t hash = 0;
  /// Of a model with experts, whose tokens take the experts of the one rank but in free steps.
  double counts_difference = 0;  ///< Of the tokens of an expert, and of those dropped.
  double aux_difference = 0;     ///< Of the routers' losses.
  /// Choices of the grid's own that are not those of one rank, from nearly the same inputs.
  std::vector<OtherChoice> other_choices;
  /// Of a step in which no choice was another, all the grid's own.
  double free_difference = 0;

  /// What is not within the tolerance, the first of it; empty: all is.
  std::string failure(const VerifyTolerance& tolerance) const;
  bool passes(const VerifyTolerance& tolerance) const { return failure(tolerance).empty(); }
};

/// Runs on the grid of `run`: a free run from the same start, and each step alone from the state
/// that one rank had before it. Collective over `world`.
VerifyResult verify_grid(const RunSpec& run, Communicator& world, const VerifyReference& reference,
                         const SampleReader& samples);

}  // namespace fourfold
