#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <vector>

#include "device/intra_op_threads.h"
#include "formats/json_lines.h"
#include "spec/run_config.h"
#include "spec/validate.h"
#include "train/commands.h"
#include "train/launch.h"
#include "train/verify_grid.h"

namespace fourfold {
namespace {

constexpr int kSteps = 5;
constexpr std::array<int, 2> kAccumulations{1, 3};

/// The run's own grid, then a list that takes every axis alone and together.
std::vector<GridShape> grids_to_verify(const GridShape& own) {
  std::vector<GridShape> grids{{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2},
                               {2, 2, 1, 1}, {1, 2, 2, 1}, {2, 1, 2, 1}, {2, 1, 1, 2}, {3, 2, 1, 1},
                               {1, 3, 2, 1}, {2, 2, 2, 1}, {2, 2, 2, 2}};
  const bool listed = std::find(grids.begin(), grids.end(), own) != grids.end();
  if (!listed && !grid_is_open(own)) grids.insert(grids.begin(), own);
  return grids;
}

/// Why a grid cannot be verified with this run; none where it can.
std::optional<std::string> obstacle(const RunSpec& run, const GridShape& grid, int accumulation) {
  const std::int64_t parts = std::int64_t{grid.z} * grid.data * accumulation;
  if (run.train.global_batch % parts != 0) {
    return fmt::format("global_batch {} is not a multiple of z·data·accumulation = {}",
                       run.train.global_batch, parts);
  }
  const auto problem = check_grid(with_grid(run, grid, accumulation));
  return problem ? std::optional<std::string>(problem->message) : std::nullopt;
}

class VerifyPrinter {
 public:
  VerifyPrinter(bool json, VerifyTolerance tolerance) : json_(json), tolerance_(tolerance) {}

  void header() const {
    if (json_) return;
    fmt::print("{:<10} {:>5}  {:>7}  {:>9}  {:>9}  {:>9}  {:>8}  {}\n", "grid xyzd", "accum",
               "weights", "loss", "gradient", "tensor", "bits", "");
  }

  void skipped(const GridShape& grid, int accumulation, const std::string& why) const {
    if (json_) {
      fmt::print("{}\n", line_of(grid, accumulation).add("skipped", why).text());
    } else {
      fmt::print("{:<10} {:>5}  skipped: {}\n", grid.name(), accumulation, why);
    }
    std::fflush(stdout);
  }

  void result(const GridShape& grid, int accumulation, const VerifyResult& r) const {
    const bool ok = r.passes(tolerance_);
    if (json_) {
      fmt::print("{}\n", line_of(grid, accumulation)
                             .add("initial_weights_equal", r.initial_weights_equal)
                             .add("loss_difference", r.loss_difference)
                             .add("gradient_difference", r.gradient_difference)
                             .add("tensor_difference", r.tensor_difference)
                             .add("worst_tensor", r.worst_tensor)
                             .add("hash", fmt::format("{:08x}", r.hash))
                             .add("passed", ok)
                             .text());
    } else {
      fmt::print("{:<10} {:>5}  {:>7}  {:>9.2e}  {:>9.2e}  {:>9.2e}  {:08x}  {}\n", grid.name(),
                 accumulation, r.initial_weights_equal ? "equal" : "DIFFER", r.loss_difference,
                 r.gradient_difference, r.tensor_difference, r.hash,
                 ok ? "ok" : "FAILED at " + r.worst_tensor);
    }
    std::fflush(stdout);
  }

 private:
  static JsonLine line_of(const GridShape& grid, int accumulation) {
    return JsonLine().add("grid", grid.name()).add("accumulation", accumulation);
  }

  bool json_;
  VerifyTolerance tolerance_;
};

struct Case {
  GridShape grid;
  int accumulation;
};

/// What one call of run_ranks verifies: MPI starts once, so all its cases; thread ranks are started
/// for each case.
std::vector<std::vector<Case>> batches_of(const std::vector<Case>& cases, bool mpi) {
  if (mpi) return {cases};
  std::vector<std::vector<Case>> batches;
  for (const Case& c : cases) batches.push_back({c});
  return batches;
}

/// The cases of the list that can be verified; says why of the others.
std::vector<Case> possible_cases(const RunSpec& run, const Launch& launch,
                                 const VerifyPrinter& printer) {
  std::vector<Case> cases;
  for (const GridShape& grid : grids_to_verify(run.parallel.grid)) {
    if (launch.mpi && grid.size() != launch.ranks) continue;
    for (const int accumulation : kAccumulations) {
      const auto why = obstacle(run, grid, accumulation);
      if (!why) {
        cases.push_back({grid, accumulation});
      } else if (launch.speaks) {
        printer.skipped(grid, accumulation, *why);
      }
    }
  }
  return cases;
}

}  // namespace

int verify_command(const VerifyOptions& options) {
  const RunSpec run = load_run(options.file, options.overrides).value();
  const Launch launch = find_launch(run.comm);
  set_intra_op_threads(1);
  const SampleReader samples = random_samples(run);
  const VerifyReference reference = make_reference(run, kSteps, samples);
  const VerifyTolerance tolerance = verify_tolerance(run.train.precision);
  const VerifyPrinter printer(options.json, tolerance);
  if (launch.speaks) printer.header();
  const std::vector<Case> cases = possible_cases(run, launch, printer);
  int failed = 0;
  for (const std::vector<Case>& batch : batches_of(cases, launch.mpi)) {
    Launch ranks = launch;
    if (!launch.mpi) ranks.ranks = ranks.ranks_on_node = batch.front().grid.size();
    run_ranks(ranks, comm_options(run), [&](Communicator& world) {
      for (const Case& c : batch) {
        const RunSpec spec = with_grid(run, c.grid, c.accumulation);
        const VerifyResult result = verify_grid(spec, world, reference, samples);
        if (world.rank() == 0) printer.result(c.grid, c.accumulation, result);
        if ((launch.mpi || world.rank() == 0) && !result.passes(tolerance)) ++failed;
      }
    });
  }
  if (cases.empty()) {
    throw Error(ErrorKind::kUsage, "no grid of the list can be verified with this run",
                "1, 2, 3, 4, 6, 8 or 16 ranks, and heads and batch that divide");
  }
  if (launch.speaks && !options.json) {
    fmt::print("{} of {} within tolerance (loss {:.0e}, gradient {:.0e}, tensor {:.0e})\n",
               static_cast<int>(cases.size()) - failed, cases.size(), tolerance.loss,
               tolerance.gradient, tolerance.tensor);
  }
  if (failed == 0) return 0;
  throw Error(ErrorKind::kInternal, fmt::format("{} cases differ from one rank", failed),
              "the table names the worst tensor of each");
}

}  // namespace fourfold
