#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <vector>

#include "device/intra_op_threads.h"
#include "formats/json_lines.h"
#include "spec/config_builder.h"
#include "spec/run_config.h"
#include "train/commands.h"
#include "train/launch.h"
#include "train/verify_cases.h"
#include "train/verify_grid.h"

namespace fourfold {
namespace {

constexpr int kSteps = 5;

std::string recompute_name(const VerifyCase& c) {
  return EnumNames<Recompute>::get()[static_cast<std::size_t>(c.run.memory.recompute)];
}

class VerifyPrinter {
 public:
  VerifyPrinter(bool json, bool experts, VerifyTolerance tolerance)
      : json_(json), experts_(experts), tolerance_(tolerance) {}

  void header() const {
    if (json_) return;
    fmt::print("{}{:>7}  {:>9}  {:>9}  {:>9}  ",
               labels("grid xyzd", "accum", "recompute", "balance"), "weights", "loss", "gradient",
               "tensor");
    if (experts_) fmt::print("{:>6}  {:>9}  ", "counts", "near ties");
    fmt::print("{:>8}\n", "bits");
  }

  void skipped(const VerifyCase& c) const {
    if (json_) {
      fmt::print("{}\n", line_of(c).add("skipped", c.obstacle).text());
    } else {
      fmt::print("{}skipped: {}\n", labels_of(c), c.obstacle);
    }
    std::fflush(stdout);
  }

  void result(const VerifyCase& c, const VerifyResult& r) const {
    if (json_) {
      print_json(c, r);
    } else {
      print_row(c, r);
    }
    std::fflush(stdout);
  }

 private:
  void print_json(const VerifyCase& c, const VerifyResult& r) const {
    JsonLine line = line_of(c);
    line.add("initial_weights_equal", r.initial_weights_equal)
        .add("loss_difference", r.loss_difference)
        .add("gradient_difference", r.gradient_difference)
        .add("tensor_difference", r.tensor_difference)
        .add("worst_tensor", r.worst_tensor);
    if (experts_) {
      line.add("counts_difference", r.counts_difference)
          .add("router_loss_difference", r.aux_difference)
          .add("other_choices", static_cast<std::int64_t>(r.other_choices.size()))
          .add("free_loss_difference", r.free_difference);
    }
    line.add("hash", fmt::format("{:08x}", r.hash)).add("passed", r.passes(tolerance_));
    if (!r.passes(tolerance_)) line.add("failed_at", r.failure(tolerance_));
    fmt::print("{}\n", line.text());
  }

  void print_row(const VerifyCase& c, const VerifyResult& r) const {
    fmt::print("{}{:>7}  {:>9.2e}  {:>9.2e}  {:>9.2e}  ", labels_of(c),
               r.initial_weights_equal ? "equal" : "DIFFER", r.loss_difference,
               r.gradient_difference, r.tensor_difference);
    if (experts_) {
      fmt::print("{:>6}  {:>9}  ", r.counts_difference == 0 ? "equal" : "DIFFER",
                 r.other_choices.size());
    }
    const std::string failed = r.failure(tolerance_);
    fmt::print("{:08x}  {}\n", r.hash, failed.empty() ? "ok" : "FAILED at " + failed);
    for (const OtherChoice& o : r.other_choices) {
      fmt::print(
          "    step {}, layer {}, sample {}, token {}: other experts than on one rank, margin "
          "{:.1e}\n",
          o.step + 1, o.block, o.sample, o.position, o.margin);
    }
  }

  std::string labels(const std::string& grid, const std::string& accumulation,
                     const std::string& recompute, const std::string& balance) const {
    if (!experts_) return fmt::format("{:<10} {:>5}  ", grid, accumulation);
    return fmt::format("{:<12} {:>5}  {:<9}  {:<19} ", grid, accumulation, recompute, balance);
  }
  std::string labels_of(const VerifyCase& c) const {
    return labels(c.grid_name(), std::to_string(c.accumulation), recompute_name(c),
                  c.balance_name());
  }

  JsonLine line_of(const VerifyCase& c) const {
    JsonLine line;
    line.add("grid", c.run.parallel.grid.name()).add("accumulation", c.accumulation);
    if (!experts_) return line;
    line.add("expert", c.run.parallel.expert)
        .add("recompute", recompute_name(c))
        .add("balance", c.balance_name());
    return line;
  }

  bool json_, experts_;
  VerifyTolerance tolerance_;
};

/// References by what they depend on, made when first asked for.
class References {
 public:
  References(const SampleReader& samples) : samples_(samples) {}  // NOLINT

  const VerifyReference& of(const VerifyCase& c) {
    const auto [at, is_new] = made_.try_emplace(c.reference_key());
    if (is_new) {
      set_intra_op_threads(1);  // Whatever ran before: bits depend on it.
      at->second = make_reference(c.run, kSteps, samples_, c.reference_accumulation());
    }
    return at->second;
  }

 private:
  const SampleReader& samples_;
  std::map<std::string, VerifyReference> made_;
};

/// What one call of run_ranks verifies: MPI starts once, so all its cases; thread ranks are started
/// for each case.
std::vector<std::vector<VerifyCase>> batches_of(const std::vector<VerifyCase>& cases, bool mpi) {
  if (mpi) return {cases};
  std::vector<std::vector<VerifyCase>> batches;
  for (const VerifyCase& c : cases) batches.push_back({c});
  return batches;
}

/// The cases that can be verified with the ranks there are; says why of the others.
std::vector<VerifyCase> possible_cases(const RunSpec& run, const Launch& launch,
                                       const VerifyPrinter& printer) {
  std::vector<VerifyCase> cases;
  for (VerifyCase& c : verify_cases(run)) {
    if (launch.mpi && c.run.parallel.grid.size() != launch.ranks) continue;
    if (c.obstacle.empty()) {
      cases.push_back(std::move(c));
    } else if (launch.speaks) {
      printer.skipped(c);
    }
  }
  return cases;
}

}  // namespace

int verify_command(const VerifyOptions& options) {
  const RunSpec run = load_run(options.file, options.overrides).value();
  const Launch launch = find_launch(run.comm);
  const SampleReader samples = random_samples(run);
  References references(samples);
  const VerifyTolerance tolerance = verify_tolerance(run.train.precision);
  const VerifyPrinter printer(options.json, run.model.moe.experts > 0, tolerance);
  if (launch.speaks) printer.header();
  const std::vector<VerifyCase> cases = possible_cases(run, launch, printer);
  int failed = 0;
  for (const std::vector<VerifyCase>& batch : batches_of(cases, launch.mpi)) {
    Launch ranks = launch;
    if (!launch.mpi) ranks.ranks = ranks.ranks_on_node = batch.front().run.parallel.grid.size();
    for (const VerifyCase& c : batch) references.of(c);  // Thread ranks share them.
    run_ranks(ranks, comm_options(run), [&](Communicator& world) {
      for (const VerifyCase& c : batch) {
        const VerifyResult result = verify_grid(c.run, world, references.of(c), samples);
        if (world.rank() == 0) printer.result(c, result);
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
