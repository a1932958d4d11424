#include <fmt/core.h>

#include <array>
#include <cstdio>
#include <optional>

#include "device/intra_op_threads.h"
#include "spec/run_config.h"
#include "spec/validate.h"
#include "train/commands.h"
#include "train/launch.h"
#include "train/verify_grid.h"

namespace fourfold {
namespace {

constexpr int kSteps = 5;
constexpr std::array<int, 2> kAccumulations{1, 3};

std::vector<GridShape> grids_to_verify() {
  return {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2},
          {2, 2, 1, 1}, {1, 2, 2, 1}, {2, 1, 2, 1}, {2, 1, 1, 2}, {3, 2, 1, 1},
          {1, 3, 2, 1}, {2, 2, 2, 1}, {2, 2, 2, 2}};
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
      fmt::print("{{\"grid\": \"{}\", \"accumulation\": {}, \"skipped\": \"{}\"}}\n", grid.name(),
                 accumulation, why);
    } else {
      fmt::print("{:<10} {:>5}  skipped: {}\n", grid.name(), accumulation, why);
    }
    std::fflush(stdout);
  }

  void result(const GridShape& grid, int accumulation, const VerifyResult& r) const {
    const bool ok = r.passes(tolerance_);
    if (json_) {
      fmt::print(
          "{{\"grid\": \"{}\", \"accumulation\": {}, \"initial_weights_equal\": {}, "
          "\"loss_difference\": {:.3e}, \"gradient_difference\": {:.3e}, "
          "\"tensor_difference\": {:.3e}, \"worst_tensor\": \"{}\", \"hash\": \"{:08x}\", "
          "\"passed\": {}}}\n",
          grid.name(), accumulation, r.initial_weights_equal, r.loss_difference,
          r.gradient_difference, r.tensor_difference, r.worst_tensor, r.hash, ok);
    } else {
      fmt::print("{:<10} {:>5}  {:>7}  {:>9.2e}  {:>9.2e}  {:>9.2e}  {:08x}  {}\n", grid.name(),
                 accumulation, r.initial_weights_equal ? "equal" : "DIFFER", r.loss_difference,
                 r.gradient_difference, r.tensor_difference, r.hash,
                 ok ? "ok" : "FAILED at " + r.worst_tensor);
    }
    std::fflush(stdout);
  }

 private:
  bool json_;
  VerifyTolerance tolerance_;
};

VerifyResult run_case(const RunSpec& run, const Launch& launch, const VerifyReference& reference,
                      const SampleReader& samples) {
  VerifyResult found;
  run_ranks(launch, comm_options(run.comm), [&](Communicator& world) {
    const VerifyResult result = verify_grid(run, world, reference, samples);
    if (world.rank() == 0 || launch.mpi) found = result;
  });
  return found;
}

}  // namespace

int verify_command(const VerifyOptions& options) {
  RunSpec run = load_run(options.file, options.overrides).value();
  const RunSpec one = with_grid(run, GridShape(1, 1, 1, 1), 1);
  Launch launch = choose_verify_launch(run);
  set_intra_op_threads(1);
  const SampleReader samples = random_samples(one);
  const VerifyReference reference = make_reference(one, kSteps, samples);
  const VerifyTolerance tolerance = verify_tolerance(run.train.precision);
  const VerifyPrinter printer(options.json, tolerance);
  if (launch.speaks) printer.header();
  int failed = 0, passed = 0;
  for (const GridShape& grid : grids_to_verify()) {
    if (launch.mpi && grid.size() != launch.ranks) continue;
    for (const int accumulation : kAccumulations) {
      if (const auto why = obstacle(run, grid, accumulation)) {
        if (launch.speaks) printer.skipped(grid, accumulation, *why);
        continue;
      }
      if (!launch.mpi) launch.ranks = launch.ranks_on_node = grid.size();
      const VerifyResult result =
          run_case(with_grid(run, grid, accumulation), launch, reference, samples);
      if (launch.speaks) printer.result(grid, accumulation, result);
      ++(result.passes(tolerance) ? passed : failed);
    }
  }
  if (launch.speaks && !options.json) {
    fmt::print("{} of {} within tolerance (loss {:.0e}, gradient {:.0e}, tensor {:.0e})\n", passed,
               passed + failed, tolerance.loss, tolerance.gradient, tolerance.tensor);
  }
  if (failed == 0) return 0;
  throw Error(ErrorKind::kInternal, fmt::format("{} cases differ from one rank", failed),
              "the table names the worst tensor of each");
}

}  // namespace fourfold
